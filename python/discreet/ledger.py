"""The ledger: read, verify, prove, trace and withdraw.

    >>> from discreet.ledger import Ledger, verify
    >>> found = verify("ledger.db", public_key=open("ledger.pub").read())   # doctest: +SKIP
    >>> found.ok, found.size                                                # doctest: +SKIP
    (True, 37)

Keys are texts: public ones PEM, 64 hexadecimal digits or name+id+base64; private ones PEM, with
`passphrase` if they are encrypted. What is verified, and what that does not show: docs/concepts/ledger.md.
"""

import json
import operator
import os
import time as _time

from discreet import _core
from discreet._core import BundleVerdict, LedgerVerification, ProofVerdict

__all__ = ["BundleVerdict", "Ledger", "LedgerVerification", "ProofVerdict", "sign_withdrawal", "verify",
           "verify_bundle", "verify_proof", "verify_receipt"]


def verify(path, *, public_key=None, checkpoint=None, attestations=True):
    """Whether a ledger is what its signer signed, and keeps every rule. Needs nothing but the file.

    public_key: the key you expect; without it the key is the one that the header declares, and whose it is
    remains open. checkpoint: a note from an earlier day, which the ledger must extend. attestations: verify
    the contributors' signatures too. Returns a LedgerVerification, true where it verifies; never raises for
    what the file contains, IO_ERROR if it cannot be read.
    """
    return _core.ledger_verify(os.fspath(path), public_key, checkpoint, attestations)


def verify_proof(proof, *, public_key, checkpoint=None):
    """Whether a proof of Ledger.prove or prove_consistency, or a line of `discreet ledger export`, holds.

    Needs no ledger. checkpoint: the earlier note that a proof of consistency is about. Returns a
    ProofVerdict, true where it holds.
    """
    text = proof if isinstance(proof, str) else json.dumps(proof)
    return _core.ledger_verify_proof(text, public_key, checkpoint)


def verify_receipt(receipt, leaf, *, public_key):
    """(entry, tree size) if the COSE receipt (RFC 9942) shows that `leaf` is in a tree that the key signed, or None."""
    return _core.ledger_verify_receipt(receipt, leaf, public_key)


def sign_withdrawal(descriptor, *, origin, key, reason="", time=None, passphrase=None):
    """A deletion event, one line of JSON: signed by the contributor or a steward, far from the ledger.

    descriptor: its hash, hexadecimal. origin: the ledger's name. time: seconds since 1970, default now.
    """
    return _core.ledger_sign_withdrawal(descriptor, origin, key, reason, int(_time.time() if time is None else time),
                                        passphrase)


def verify_bundle(bundle, *, public_key=None):
    """Whether a withdrawal bundle proves what it says. Needs no ledger. Returns a BundleVerdict."""
    return _core.ledger_verify_bundle(bundle, public_key)


class Ledger:
    """A ledger's file, for reading: a sequence of entries, each a dict with what it says.

    Entries are what the file says; `verify` says whether to believe it. Nothing is kept open between calls.
    """

    def __init__(self, path):
        self.path = os.fspath(path)
        self._signed()

    def _signed(self):
        return _core.ledger_note(self.path)

    @property
    def note(self):
        """The last signed checkpoint: keep a copy elsewhere."""
        return self._signed()[1]

    def __len__(self):
        """How many entries the last checkpoint covers."""
        return self._signed()[0]

    def __getitem__(self, position):
        index = operator.index(position)
        if index < 0:
            index += len(self)
        rows = _core.ledger_rows(self.path, index, 1) if 0 <= index < len(self) else []
        if not rows or rows[0][0] != index:
            raise IndexError(f"there is no entry {position}")
        return _entry(rows[0])

    def __iter__(self):
        begin, size = 0, len(self)
        while begin < size:
            rows = _core.ledger_rows(self.path, begin, min(4096, size - begin))
            if not rows:
                return
            yield from map(_entry, rows)
            begin = rows[-1][0] + 1

    def leaf(self, position):
        """The bytes of an entry, as they are hashed; INVALID_INPUT once it was summarised."""
        return _core.ledger_leaf(self.path, operator.index(position))

    def verify(self, *, public_key=None, checkpoint=None, attestations=True):
        """discreet.ledger.verify of this file."""
        return verify(self.path, public_key=public_key, checkpoint=checkpoint, attestations=attestations)

    def prove(self, position):
        """A proof that an entry is in the ledger, for verify_proof: a dict that JSON can hold."""
        return json.loads(_core.ledger_prove_entry(self.path, operator.index(position)))

    def prove_consistency(self, from_size):
        """A proof that the ledger extends its first `from_size` entries."""
        return json.loads(_core.ledger_prove_consistency(self.path, operator.index(from_size)))

    def trace(self, descriptor):
        """Every run, epoch and release that a contribution touched, and what each cost it.

        descriptor: its hash, hexadecimal. Keys: admission, withdrawal (entries, or None), uses, releases, epsilon.
        """
        found = _core.ledger_trace(self.path, descriptor)
        for name in ("admission", "withdrawal"):
            if found[name] is not None:
                position, text = found[name]
                found[name] = {"entry": position, **json.loads(text)}
        return found

    def withdraw(self, events, *, key, passphrase=None, checkpoint=None):
        """Records signed deletion events (lines of JSON), each once; returns how many are new.

        key: the ledger's private key. checkpoint: the note kept of it; a ledger that does not extend it is refused.
        """
        return _core.ledger_withdraw(self.path, events, key, passphrase, checkpoint)[0]

    def bundle(self, descriptor, *, key, passphrase=None):
        """What a contributor takes home after a withdrawal, as JSON; verify_bundle checks it."""
        return _core.ledger_bundle(self.path, descriptor, key, passphrase)


def _entry(row):
    position, text, leaf_hash = row
    said = {"type": "summarised"} if text is None else json.loads(text)
    return {"entry": position, **said, "leaf_hash": leaf_hash}
