"""The inference-time gate: decides whether a released model may answer a request.

    >>> from discreet.release import Gate
    >>> gate = Gate("run/release.json", "release.pub", ledger="ledger.db")        # doctest: +SKIP
    >>> decision = gate.decide({"generation_class": "predict", "purpose": "research",
    ...                         "rights": {"classes": ["public-text"]}})           # doctest: +SKIP
    >>> decision.allowed, decision.reason                                         # doctest: +SKIP
    (True, 'ALLOWED')

It fails closed: with an invalid manifest, model or ledger, the gate denies everything and says why.
Releases are signed by `discreet release`; see docs/concepts/release.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from discreet import _core
from discreet.errors import Error

__all__ = ["Decision", "Gate", "read_manifest"]


@dataclasses.dataclass(frozen=True)
class Decision:
    """The decision of a gate. Its truth value is `allowed`."""

    allowed: bool
    reason: str  # "ALLOWED", "STALE", "WITHDRAWN" and so on; the spelling never changes
    sentence: str
    ledger_position: int | None  # number of ledger entries considered; None without a ledger

    def __bool__(self) -> bool:
        return self.allowed


def _file(path: pathlib.Path) -> tuple[str, bytes]:
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
    return path.name, digest.digest()


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The in-toto statement in a manifest, without verification: for reading, never for decisions."""
    statement: dict[str, Any] = json.loads(_core.read_manifest(pathlib.Path(path).read_bytes()))
    return statement


class Gate(_core.ReleaseGate):
    """The gate of one manifest. Safe to use from any number of threads.

    manifest: the file that `discreet release` wrote.
    public_key: file with the trusted key of releases (PEM or hexadecimal).
    model: the served files; by default those next to the manifest. They are read once.
    ledger: the current ledger of the corpus. It is verified completely. With it, the gate notices
        withdrawals since the release, and releases that were not recorded. Without it the manifest is
        trusted until it is stale.
    ledger_key: file with the expected key of the ledger.
    checkpoint: file with a signed note from elsewhere, which the ledger must extend.
    clock: returns seconds since 1970; by default the system's clock.
    """

    def __init__(self, manifest: str | os.PathLike[str], public_key: str | os.PathLike[str], *,
                 model: Iterable[str | os.PathLike[str]] | None = None,
                 ledger: str | os.PathLike[str] | None = None, ledger_key: str | os.PathLike[str] | None = None,
                 checkpoint: str | os.PathLike[str] | None = None,
                 clock: Callable[[], int] | None = None) -> None:
        envelope = pathlib.Path(manifest).read_bytes()
        if model is None:
            try:
                names = [about["name"] for about in json.loads(_core.read_manifest(envelope))["subject"]]
            except Error:
                names = []  # the gate reports the invalid manifest
            beside = (pathlib.Path(manifest).parent / name for name in names)
            model = [path for path in beside if path.is_file()]

        def text(path: str | os.PathLike[str] | None) -> str | None:
            return None if path is None else pathlib.Path(path).read_text("utf-8")

        super().__init__(envelope, pathlib.Path(public_key).read_text("utf-8"),
                         [_file(pathlib.Path(path)) for path in model],
                         None if ledger is None else pathlib.Path(ledger), text(ledger_key),
                         text(checkpoint), clock)

    def decide(self, request: Mapping[str, Any]) -> Decision:
        """Whether the model may answer.

        request: {"generation_class": str, "purpose": str, "rights": {"classes": [str],
            "most_epsilon": float}}; both rights are optional. Anything else in it is an Error.
        """
        return Decision(*self.decide_request(json.dumps(request)))

    def standing(self) -> Decision:
        """Whether the manifest is valid now, independent of a request."""
        return Decision(*self.judge_manifest())

    @property
    def statement(self) -> dict[str, Any] | None:
        """The in-toto statement; None if the key did not sign the manifest."""
        text = self.statement_text()
        return None if text is None else dict(json.loads(text))
