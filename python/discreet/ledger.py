"""The ledger: read, verify, prove, trace and withdraw.

    >>> from discreet.ledger import Ledger, verify
    >>> found = verify("ledger.db", public_key=open("ledger.pub").read())   # doctest: +SKIP
    >>> found.ok, found.size                                                # doctest: +SKIP
    (True, 37)

Keys are texts: public keys as PEM, 64 hexadecimal digits or name+id+base64; private keys as PEM, with
`passphrase` if they are encrypted. docs/concepts/ledger.md says what verification shows, and what it does
not.
"""

from __future__ import annotations

import json
import operator
import os
import time as _time
from collections.abc import Iterator, Mapping
from typing import Any, SupportsIndex

from discreet import _core
from discreet._core import BundleVerdict, LedgerVerification, ProofVerdict

__all__ = ["BundleVerdict", "Ledger", "LedgerVerification", "ProofVerdict", "sign_withdrawal", "verify",
           "verify_bundle", "verify_proof", "verify_receipt"]


def verify(path: str | os.PathLike[str], *, public_key: str | None = None, checkpoint: str | None = None,
           attestations: bool = True) -> LedgerVerification:
    """Verifies that a ledger is what its signer signed, and follows every rule. Needs only the file.

    public_key: the key you expect. Without it, the key that the header declares is used, and its owner is
    not established. checkpoint: an earlier note, which the ledger must extend. attestations: verify the
    contributors' signatures too. Returns a LedgerVerification that is true if the ledger verifies. Never
    raises because of the content of the file; IO_ERROR if it cannot be read.
    """
    return _core.ledger_verify(os.fspath(path), public_key, checkpoint, attestations)


def verify_proof(proof: str | Mapping[str, Any], *, public_key: str, checkpoint: str | None = None) -> ProofVerdict:
    """Verifies a proof of Ledger.prove or prove_consistency, or a line of `discreet ledger export`.

    Needs no ledger. checkpoint: the earlier note to which a proof of consistency refers. Returns a
    ProofVerdict that is true if the proof holds.
    """
    text = proof if isinstance(proof, str) else json.dumps(proof)
    return _core.ledger_verify_proof(text, public_key, checkpoint)


def verify_receipt(receipt: bytes, leaf: bytes, *, public_key: str) -> tuple[int, int] | None:
    """(entry, tree size) if the COSE receipt (RFC 9942) proves that `leaf` is in a tree that the key signed, else None."""
    return _core.ledger_verify_receipt(receipt, leaf, public_key)


def sign_withdrawal(descriptor: str, *, origin: str, key: str, reason: str = "", time: float | None = None,
                    passphrase: str | None = None) -> str:
    """A deletion event, one line of JSON, signed by the contributor or a steward without access to the ledger.

    descriptor: its hash, hexadecimal. origin: the ledger's name. time: seconds since 1970, by default now.
    """
    return _core.ledger_sign_withdrawal(descriptor, origin, key, reason, int(_time.time() if time is None else time),
                                        passphrase)


def verify_bundle(bundle: str, *, public_key: str | None = None) -> BundleVerdict:
    """Verifies a withdrawal bundle. Needs no ledger. Returns a BundleVerdict that is true if it holds."""
    return _core.ledger_verify_bundle(bundle, public_key)


class Ledger:
    """A ledger's file, for reading: a sequence of entries, each a dict with its fields.

    Entries are what the file contains; use `verify` to check them. No file is kept open between calls.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._signed()

    def _signed(self) -> tuple[int, str]:
        return _core.ledger_note(self.path)

    @property
    def note(self) -> str:
        """The last signed checkpoint: keep a copy elsewhere."""
        return self._signed()[1]

    def __len__(self) -> int:
        """The number of entries that the last checkpoint covers."""
        return self._signed()[0]

    def __getitem__(self, position: SupportsIndex) -> dict[str, Any]:
        index = operator.index(position)
        if index < 0:
            index += len(self)
        rows = _core.ledger_rows(self.path, index, 1) if 0 <= index < len(self) else []
        if not rows or rows[0][0] != index:
            raise IndexError(f"entry {position} does not exist: the ledger has {len(self)} entries")
        return _entry(rows[0])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        begin, size = 0, len(self)
        while begin < size:
            rows = _core.ledger_rows(self.path, begin, min(4096, size - begin))
            if not rows:
                return
            yield from map(_entry, rows)
            begin = rows[-1][0] + 1

    def leaf(self, position: SupportsIndex) -> bytes:
        """The bytes of an entry as they are hashed; INVALID_INPUT if it was summarised."""
        return _core.ledger_leaf(self.path, operator.index(position))

    def verify(self, *, public_key: str | None = None, checkpoint: str | None = None,
               attestations: bool = True) -> LedgerVerification:
        """discreet.ledger.verify of this file."""
        return verify(self.path, public_key=public_key, checkpoint=checkpoint, attestations=attestations)

    def prove(self, position: SupportsIndex) -> dict[str, Any]:
        """A proof that an entry is in the ledger, for verify_proof: a dict that JSON can represent."""
        return dict(json.loads(_core.ledger_prove_entry(self.path, operator.index(position))))

    def prove_consistency(self, from_size: SupportsIndex) -> dict[str, Any]:
        """A proof that the ledger extends its first `from_size` entries."""
        return dict(json.loads(_core.ledger_prove_consistency(self.path, operator.index(from_size))))

    def trace(self, descriptor: str) -> dict[str, Any]:
        """Every run, epoch and release that a contribution was part of, and the cost of each.

        descriptor: its hash, hexadecimal. Keys: admission, withdrawal (entries, or None), uses, releases, epsilon.
        """
        found = _core.ledger_trace(self.path, descriptor)
        for name in ("admission", "withdrawal"):
            if found[name] is not None:
                position, text = found[name]
                found[name] = {"entry": position, **json.loads(text)}
        return found

    def withdraw(self, events: str, *, key: str, passphrase: str | None = None, checkpoint: str | None = None) -> int:
        """Records signed deletion events (lines of JSON), each once; returns the number of new ones.

        key: the ledger's private key. checkpoint: the note you kept; a ledger that does not extend it is rejected.
        """
        return _core.ledger_withdraw(self.path, events, key, passphrase, checkpoint)[0]

    def bundle(self, descriptor: str, *, key: str, passphrase: str | None = None) -> str:
        """The evidence for a contributor after a withdrawal, as JSON; verify_bundle checks it."""
        return _core.ledger_bundle(self.path, descriptor, key, passphrase)


def _entry(row: tuple[int, str | None, str]) -> dict[str, Any]:
    position, text, leaf_hash = row
    fields = {"type": "summarised"} if text is None else json.loads(text)
    return {"entry": position, **fields, "leaf_hash": leaf_hash}
