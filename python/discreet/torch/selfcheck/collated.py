"""Checks the collate function on synthetic records: its result for a record must not depend on others, except for padding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from discreet.errors import Error
from discreet.torch.errors import refuse
from discreet.torch.selfcheck import draws
from discreet.torch.selfcheck.outputs import below_of, leaves_of, same
from discreet.torch.selfcheck.public_records import CANNOT_CALL

if TYPE_CHECKING:
    from discreet.torch.selfcheck.public_records import Records


def check(records: Records, numbers: Sequence[int], replaced: int) -> None:
    """Rejects a collate function by which one record changes what the loop gets for another. Accepts one that cannot be called
    with synthetic records."""
    def batch(some: Sequence[int], versions: Sequence[int] | None = None, seed: int = 2,
              mode: Callable[[], Any] = contextlib.nullcontext) -> Any:
        draws.seed(seed)
        with mode():
            return records.whole(some, versions)

    versions = [int(i == replaced) for i in numbers]
    try:
        drawn = batch(numbers), batch(numbers, versions)
        whole, after, again = (batch(numbers, version, seed, draws.OneNumber)
                               for version, seed in ((None, 2), (versions, 2), (None, 3)))
        alone = [batch([i], mode=draws.OneNumber) for i in numbers]
    except Error:
        raise
    except CANNOT_CALL:
        return
    # Draws from generators other than PyTorch's cannot be repeated for one record alone.
    Comparison(len(numbers), replaced, _equal(whole, again)).run("", whole, after, alone)
    Comparison(len(numbers), replaced, False).run("", *drawn, alone)


def _tensor(x: Any) -> Any:
    if type(x).__module__ == "numpy" and hasattr(x, "dtype") and x.dtype.kind in "biufc":
        return torch.as_tensor(x)
    return x


def _equal(a: Any, b: Any) -> bool:
    """True if two trees are equal in every bit."""
    a, b = leaves_of(a), leaves_of(b)
    return [path for path, _ in a] == [path for path, _ in b] and all(_equal_leaf(x, y) for (_, x), (_, y) in zip(a, b))


def _equal_leaf(x: Any, y: Any) -> bool:
    x, y = _tensor(x), _tensor(y)
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        return x.dtype == y.dtype and x.shape == y.shape and same(x, y)
    try:
        return type(x) is type(y) and bool(x == y or x != x and y != y)
    except Error:
        raise
    except CANNOT_CALL:
        return False


class Comparison:
    def __init__(self, count: int, replaced: int, repeatable: bool) -> None:
        self.count, self.others = count, [i for i in range(count) if i != replaced]
        self.repeatable = repeatable

    def run(self, path: str, whole: Any, after: Any, alone: Sequence[Any]) -> None:
        """Compares a batch with the batch in which one record is replaced, and with each record alone."""
        whole, after, alone = _tensor(whole), _tensor(after), [_tensor(one) for one in alone]
        if isinstance(whole, torch.Tensor) and all(isinstance(one, torch.Tensor) for one in (after, *alone)):
            self.of_tensor(path, whole, after, alone)
            return
        below = below_of(whole)
        if below is None:
            self.judge(path, _equal_leaf(whole, after))
            return
        if isinstance(whole, (list, tuple)) and len(whole) == self.count and all(len(one) == 1 for one in alone):
            self.judge(path, type(after) is type(whole) and len(after) == len(whole))
            for i in range(self.count):
                self.judge(path, i not in self.others or _equal(whole[i], after[i]))
                self.judge(path, not self.repeatable or _equal(whole[i], alone[i][0]), "that of the record alone")
            return
        others = [dict(below_of(one) or ()) for one in (after, *alone)]
        self.judge(path, all(other.keys() == dict(below).keys() for other in others))
        for key, value in below:
            self.run(path + key, value, others[0][key], [other[key] for other in others[1:]])

    def of_tensor(self, path: str, whole: torch.Tensor, after: torch.Tensor, alone: Sequence[torch.Tensor]) -> None:
        self.judge(path, whole.dtype == after.dtype and whole.shape == after.shape)
        dim = self.dimension_of_records(whole, alone)
        if dim is None:  # no record dimension: it must be the same for all
            self.judge(path, same(whole, after))
            return
        whole, after = (x.unflatten(dim, (self.count, -1)).movedim(dim, 0) for x in (whole, after))
        for i, one in enumerate(alone):
            self.judge(path, i not in self.others or same(whole[i], after[i]))
            one = one.unflatten(dim, (1, -1)).select(dim, 0)
            self.judge(path, not self.repeatable or any(same(block, one) for block in _without_padding(whole[i], one.shape)),
                       "that of the record alone")

    def dimension_of_records(self, whole: torch.Tensor, alone: Sequence[torch.Tensor]) -> int | None:
        if any(one.dim() != whole.dim() for one in alone):
            return None
        most = [max(sizes) for sizes in zip(*(one.shape for one in alone))]
        return next((d for d in range(whole.dim()) if whole.shape[d] == self.count * most[d] and all(
            whole.shape[e] == most[e] for e in range(whole.dim()) if e != d)), None)

    def judge(self, path: str, holds: bool, expected: str = "the same when another record is replaced") -> None:
        if not holds:
            place = f" in {path}" if path else ""
            refuse(f"self-check: the collate function couples records: its result for a record{place} is not {expected}, for "
                   "instance because weights or targets are normalised over the batch. Compute it for each record in the data "
                   "set, with public constants; padding is allowed")


def _without_padding(block: torch.Tensor, shape: torch.Size) -> Iterator[torch.Tensor]:
    """The block without padding at its end, and without padding at its start."""
    for at_end in (True, False):
        out = block
        for d, size in enumerate(shape):
            out = out.narrow(d, 0 if at_end else out.shape[d] - size, size) if size <= out.shape[d] else out
        yield out
