"""The inference-time gate: whether a released model may answer a request.

    >>> from discreet.release import Gate
    >>> gate = Gate("run/release.json", "release.pub", ledger="ledger.db")        # doctest: +SKIP
    >>> decision = gate.decide({"generation_class": "predict", "purpose": "research",
    ...                         "rights": {"classes": ["public-text"]}})           # doctest: +SKIP
    >>> decision.allowed, decision.reason                                         # doctest: +SKIP
    (True, 'ALLOWED')

It fails closed: a manifest, model or ledger that is not what it should be makes a gate that denies
everything and says why. Releases are signed by `discreet release`; see docs/concepts/release.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping

from discreet import _core
from discreet.errors import Error

__all__ = ["Decision", "Gate", "read_manifest"]


@dataclasses.dataclass(frozen=True)
class Decision:
    """What a gate says. Its truth value is `allowed`."""

    allowed: bool
    reason: str  # "ALLOWED", "STALE", "WITHDRAWN" and so on; the spelling never changes
    sentence: str
    ledger_position: int | None  # entries of the ledger that were looked at; None without ledger

    def __bool__(self) -> bool:
        return self.allowed


def _file(path: pathlib.Path) -> tuple[str, bytes]:
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
    return path.name, digest.digest()


def read_manifest(path: str | os.PathLike) -> dict:
    """The in-toto statement in a manifest, whoever signed it: to be read, never to decide by."""
    return json.loads(_core.read_manifest(pathlib.Path(path).read_bytes()))


class Gate(_core.ReleaseGate):
    """The gate of one manifest. It may be asked from any number of threads.

    manifest: the file that `discreet release` wrote.
    public_key: file with the key of releases that is trusted (PEM or hexadecimal).
    model: the files that are served; those beside the manifest, if none are given. They are read once.
    ledger: the corpus's ledger as it is now. It is verified whole; with it, withdrawals since the
        release and releases that nobody recorded are seen. Without it the manifest is believed until
        it is stale.
    ledger_key: file with the ledger's key that is expected.
    checkpoint: file with a signed note from elsewhere, which the ledger must extend.
    clock: gives seconds since 1970; the system's if none is given.
    """

    def __init__(self, manifest: str | os.PathLike, public_key: str | os.PathLike, *,
                 model: Iterable[str | os.PathLike] | None = None,
                 ledger: str | os.PathLike | None = None, ledger_key: str | os.PathLike | None = None,
                 checkpoint: str | os.PathLike | None = None,
                 clock: Callable[[], int] | None = None):
        envelope = pathlib.Path(manifest).read_bytes()
        if model is None:
            try:
                names = [about["name"] for about in json.loads(_core.read_manifest(envelope))["subject"]]
            except Error:
                names = []  # the gate says that it is no manifest
            beside = (pathlib.Path(manifest).parent / name for name in names)
            model = [path for path in beside if path.is_file()]

        def text(path):
            return None if path is None else pathlib.Path(path).read_text("utf-8")

        super().__init__(envelope, text(public_key), [_file(pathlib.Path(path)) for path in model],
                         None if ledger is None else pathlib.Path(ledger), text(ledger_key),
                         text(checkpoint), clock)

    def decide(self, request: Mapping) -> Decision:
        """Whether the model may answer.

        request: {"generation_class": str, "purpose": str, "rights": {"classes": [str],
            "most_epsilon": float}}; both rights may be left out. Anything else in it is an Error.
        """
        return Decision(*self.decide_request(json.dumps(request)))

    def standing(self) -> Decision:
        """Whether the manifest holds now, whatever is asked."""
        return Decision(*self.judge_manifest())

    @property
    def statement(self) -> dict | None:
        """The in-toto statement; None if the manifest is not one that the key signed."""
        text = self.statement_text()
        return None if text is None else json.loads(text)
