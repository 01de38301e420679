"""Makes the random numbers secret that the module, the data set and the collate function draw from global generators.

torch hands random numbers to the rows of a batch in order, so an added record shifts those of every later record. If somebody
knows the numbers (`torch.manual_seed(0)`), the sum of the other records then differs too, by far more than one record's bound.
If the numbers are secret and independent, the sum of the other records has the same distribution with and without the added
record, and only the bounded part of that record remains.
"""

from __future__ import annotations

import hashlib
import random
import secrets
import struct
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_WORDS = 624  # of a Mersenne twister
_HEAD = struct.Struct("<QiiQ")  # of torch's state: initial seed, numbers left, seeded, next; then the words


def set_torch(number: bytes) -> None:
    """Seeds torch's global generators of all devices. `manual_seed` uses 32 bits of its argument for the processor's
    generator, so its whole state is set."""
    torch.manual_seed(int.from_bytes(hashlib.sha256(b"seed" + number).digest()[:7], "little"))
    state = torch.get_rng_state()
    words = hashlib.shake_256(number).digest(4 * _WORDS)
    content = _HEAD.pack(0, 1, 1, 0) + b"".join(words[i:i + 4] + bytes(4) for i in range(0, len(words), 4))
    state[:len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    torch.set_rng_state(state)


def set_all(number: bytes) -> None:
    """torch, `random`, and numpy where it is loaded."""
    set_torch(number)
    random.seed(int.from_bytes(hashlib.sha256(b"random" + number).digest(), "little"))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        words = struct.unpack("<8I", hashlib.sha256(b"numpy" + number).digest())
        numpy.random.seed(list(words))


class Worker:
    """The worker_init_fn of the private loader: the user's, then secret numbers."""

    def __init__(self, user: Callable[[int], None] | None) -> None:
        self.user = user

    def __call__(self, worker: int) -> None:
        if self.user is not None:
            self.user(worker)
        set_all(secrets.token_bytes(32))


class SecretDraws:
    """Also the forward pre-hook of the trained module; in a copy of the module it does nothing."""

    def __init__(self, piece: Callable[[], int | None] = lambda: None) -> None:
        """piece: a number that is new for every piece of a batch; None outside private steps."""
        self.piece, self._key = piece, secrets.token_bytes(32)

    def before_batch(self) -> None:
        """Before a piece is loaded: its transforms, and what the loop draws until it calls the module, are secret."""
        set_all(secrets.token_bytes(32))

    @torch.compiler.disable
    def __call__(self, _module: nn.Module, _inputs: Any) -> None:
        """Sets functions of torch's present state, so that a checkpointed module that runs again draws the same numbers."""
        if (piece := self.piece()) is not None:
            now = torch.get_rng_state().numpy().tobytes()
            set_all(hashlib.sha256(self._key + piece.to_bytes(8, "little") + now).digest())

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return SecretDraws, ()
