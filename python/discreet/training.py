"""Private training from one configuration.

    >>> import discreet
    >>> run = discreet.train("train.yaml", "churn")             # doctest: +SKIP
    >>> run.epsilon.upper, run.model["layer0.weight"].shape     # doctest: +SKIP
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import warnings
from collections.abc import Callable, Mapping

from discreet import _core
from discreet.accounting import Interval
from discreet.mechanism import _settings, _text

__all__ = ["Run", "train"]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that ended. Of its files, `trace` is confidential and secret.key is secret."""

    directory: pathlib.Path
    epsilon: Interval | None  # the claim for all that was released; None if nothing is claimed
    delta: float
    adjacency: str
    accuracy: float | None  # of held-out records, which have no guarantee
    loss: float | None
    steps: int
    planned_steps: int | None
    seconds: float
    ended: str  # "completed", "budget_reached" or "interrupted"
    not_private: list[str]  # why the run is not private; empty if it is
    notes: list[str]
    released: dict | None  # of metrics.release: dp, the last step's values: noised, inside epsilon

    @property
    def model(self) -> dict:
        """The released weights: name → NumPy array, float32."""
        import numpy as np
        data = (self.directory / "model.safetensors").read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        header.pop("__metadata__", None)
        return {name: np.frombuffer(data, np.float32, offset=8 + length + about["data_offsets"][0],
                                    count=int(np.prod(about["shape"]))).reshape(about["shape"])
                for name, about in sorted(header.items(), key=lambda t: t[1]["data_offsets"])}

    @property
    def trace(self) -> list[dict]:
        """What happened, line by line. Confidential: it is not noised."""
        text = (self.directory / "trace.jsonl").read_text("utf-8")
        return [json.loads(line) for line in text.splitlines()]


def train(config: str | os.PathLike | Mapping, out: str | os.PathLike, *, resume: bool = False,
          threads: int | None = None, settings: Mapping | None = None, on_bad_row: str = "refuse",
          progress: Callable[[dict], None] | None = None) -> Run:
    """Trains as the configuration says and leaves the run in the directory `out`.

    config, settings: as load_config takes them. Paths in a file are relative to it; otherwise to
        the working directory.
    resume: go on with the run in that directory, bit for bit.
    threads: the result does not depend on it; all processors if none is given.
    on_bad_row: "refuse" the file, or "skip" rows that cannot be read.
    progress: called after every step with {"step", "planned_steps", "epsilon", "steps_per_second"}.

    Ctrl-C ends the run after its step; the result then says "interrupted".
    """
    text, name = _text(config)
    folder = pathlib.Path(name).parent if pathlib.Path(name).is_file() else pathlib.Path()
    result = _core.train(text, name, _settings(settings), folder, pathlib.Path(out), resume,
                         threads or os.cpu_count() or 1, on_bad_row, progress)
    epsilon = result.pop("epsilon")
    if zeroed := result.pop("zeroed"):
        warnings.warn(f"{zeroed} (this depends on the records: keep it confidential)", stacklevel=2)
    return Run(epsilon=Interval(*epsilon) if epsilon else None, **result)
