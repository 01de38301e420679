"""The mechanism of private training, over arrays of gradients.

    >>> import numpy as np
    >>> from discreet.mechanism import clip
    >>> clipped = clip({"w": np.array([[3.0, 4.0], [0.3, 0.4]])}, 1.0)
    >>> clipped.sum["w"].round(6)
    array([0.9, 1.2])
"""

from __future__ import annotations

import dataclasses
import decimal
import json
import os
import pathlib
from collections.abc import Mapping, Sequence

from discreet import _core
from discreet._core import Clipped, Sampler, clip
from discreet.accounting import Account, Interval
from discreet.errors import Error

__all__ = ["Budget", "Clipped", "Config", "Mechanism", "Sampler", "Step", "Tensor", "clip",
           "load_config"]

_UPWARDS = decimal.Context(prec=6, rounding=decimal.ROUND_CEILING)  # what is printed is a bound


@dataclasses.dataclass(frozen=True)
class Config:
    """A configuration that is valid, with every key filled in."""

    yaml: str  # every setting; reads back to the same hash
    hash: str  # SHA-256 of the canonical form: same meaning, same hash
    notes: list[str]  # what was changed or has no effect; for a person to read
    not_private: list[str]  # why a run under it is stamped not_private; empty if it is not


@dataclasses.dataclass(frozen=True)
class Tensor:
    """What a layout says about a tensor beyond its name.

    layer: by default the name up to its last dot; group: by default the layer.
    adapter: the low-rank or prefix module it is part of.
    """

    shape: tuple[int, ...] = ()
    layer: str = ""
    group: str = ""
    trainable: bool = True
    adapter: str = ""


@dataclasses.dataclass(frozen=True)
class Budget:
    """Cumulative epsilon before and after a step."""

    before: Interval
    after: Interval
    target: float
    delta: float
    adjacency: str
    past_warning: bool  # after.upper is within the safety reserve


@dataclasses.dataclass(frozen=True)
class Step:
    """What one optimizer step gives.

    Only `gradients`, `epsilon` and `released` may leave the room: `metrics` and `trace` are not
    noised and hold values that depend on the records.
    """

    t: int
    # name → noisy average, of run.compute_dtype (bfloat16: float32 arrays of such values).
    gradients: dict
    epsilon: Budget
    metrics: dict  # confidential
    released: dict | None  # noised clip fractions, under metrics.release: dp
    warnings: list[str]
    trace: dict  # the `iter` line; confidential


def load_config(config: str | os.PathLike | Mapping, settings: Mapping | None = None) -> Config:
    """Reads, checks and resolves a configuration; discreet.Error says what is wrong and where.

    config: YAML text, the path of a file (a PathLike, or a string ending in .yaml or .yml), or the
        dictionary that such a file would hold.
    settings: key → value, instead of what the configuration says, as `discreet check --set`.
    """
    return Config(*_core.load_config(*_text(config), _settings(settings)))


class Mechanism:
    """The private step: clips microbatches, adds noise, and accounts before it releases.

    A call that fails raises discreet.Error, releases nothing, and leaves the state as it was.

    config, settings: as load_config takes them.
    layout: name → shape of a tensor without the records, or a Tensor.
    key: 32 secret bytes, of which noise and batches are drawn; a fresh one if none is given. Keep
        it to go on after a restart, and never use it for another run. With secure: false the
        configuration's seed counts instead, and the run is not private.
    data_commitment: SHA-256 digest of a commitment to the data, bound into the replay tokens.
    threads: results do not depend on it.
    """

    def __init__(self, config: str | os.PathLike | Mapping,
                 layout: Mapping[str, Sequence[int] | Tensor], *, key: bytes | None = None,
                 data_commitment: bytes | None = None, settings: Mapping | None = None,
                 threads: int = 1) -> None:
        tensors = []
        for name, tensor in layout.items():
            if not isinstance(tensor, Tensor):
                tensor = Tensor(tuple(tensor))
            tensors.append((name, list(tensor.shape), tensor.layer, tensor.group, tensor.trainable,
                            tensor.adapter))
        self._core = _core.MechanismSession(*_text(config), _settings(settings), tensors, key,
                                            data_commitment, threads)

    def apply(self, gradients: Mapping | Sequence[Mapping]) -> Step:
        """One optimizer step: the dictionary name → array [records, ...] of its one microbatch, or
        a list of them, one for each of gradient_accumulation_steps.

        Arrays are float32 or float64, C-contiguous, and never copied. Tensors that are public or
        not trainable may be left out; they are not read and receive no gradient.
        """
        all_of_them = [gradients] if isinstance(gradients, Mapping) else gradients
        return self._step(self._core.apply([dict(one) for one in all_of_them]))

    def accumulate(self, gradients: Mapping) -> None:
        """Clips one microbatch into the step; release() ends it."""
        self._core.accumulate(dict(gradients))

    def release(self) -> Step:
        """The step of the microbatches that were accumulated."""
        return self._step(self._core.release())

    def sampler(self, rows: int) -> Sampler:
        """Who takes part in which step, by the configured law, of records 0 … rows − 1."""
        return self._core.sampler(rows)

    @property
    def t(self) -> int:
        """Optimizer steps done."""
        return self._core.t()

    @property
    def spent(self) -> Account:
        """Spent so far; decide by epsilon.upper."""
        _, delta, adjacency, accountant = self._core.budget()
        return Account(Interval(*self._core.spent()), delta, adjacency, accountant)

    @property
    def config(self) -> Config:
        """As it was resolved."""
        return Config(self._core.yaml(), self._core.hash(), self._core.notes(), self.not_private)

    @property
    def not_private(self) -> list[str]:
        """Why the run is stamped not_private; empty if it is not."""
        return self._core.not_private()

    @property
    def most_records(self) -> int:
        """The most records of a step; more are refused."""
        return self._core.most_records()

    @property
    def replay(self) -> str:
        """dp_replay_t of the state as it is."""
        return self._core.replay()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of save()."""
        return self._core.fingerprint()

    def save(self) -> bytes:
        """The state as deterministic CBOR, without the key. Confidential: it holds raw sums."""
        return self._core.save()

    def restore(self, saved: bytes, released: int | None = None) -> None:
        """Takes back what save() gave under the same configuration and layout.

        released is how many steps the run had released when it ended. Equal to the t of the saved
        state, the run goes on bit for bit. If it is more, the steps in between are executed again on
        what may be other gradients: noise comes from a fresh stream, what was released is charged
        again, and the batches must be drawn anew (a sampler made afterwards is). Secure runs must
        say it.
        """
        self._core.restore(saved, released)

    @property
    def lineage(self) -> str:
        """Names the fork of the noise after steps were executed again; empty before."""
        return self._core.lineage()

    def trace_header(self) -> dict:
        """The `run_header` line of the trace."""
        return self._core.trace_header()

    def trace_end(self) -> dict:
        """The `run_end` line of the trace."""
        return self._core.trace_end()

    def failure(self, error: Error) -> dict:
        """The `failure` line of the trace, for an error that ended the run."""
        return self._core.failure(error.code, error.op, error.sentence)

    def _step(self, raw: dict) -> Step:
        target, delta, adjacency, _ = self._core.budget()
        budget = Budget(Interval(*raw["before"]), Interval(*raw["after"]), target, delta, adjacency,
                        raw["past_warning"])
        return Step(raw["t"], raw["gradients"], budget, raw["metrics"], raw["released"],
                    raw["warnings"], raw["trace"])

    def __repr__(self) -> str:
        spent = self.spent
        upper = _UPWARDS.create_decimal_from_float(spent.epsilon.upper)
        return (f"<discreet.Mechanism after {self.t} steps, epsilon ≤ {upper:g} at "
                f"delta {spent.delta}, {spent.adjacency}>")


def _text(config: str | os.PathLike | Mapping) -> tuple[bytes, str]:
    """The YAML of a configuration, and what errors call it."""
    if isinstance(config, Mapping):
        return _json(config).encode(), "config"  # JSON is YAML
    if isinstance(config, str) and not config.endswith((".yaml", ".yml")):
        return config.encode(), "config"
    return pathlib.Path(config).read_bytes(), os.fspath(config)


def _settings(settings: Mapping | None) -> list[str]:
    for key in settings or {}:
        if not isinstance(key, str) or not key or "=" in key or any(c.isspace() for c in key):
            sentence = f"settings has the key {key!r}; give the name of a key of the configuration, without = and spaces"
            error = Error(f"INVALID_DP_CONFIG: settings: {sentence}")
            error.code, error.op, error.sentence = "INVALID_DP_CONFIG", "settings", sentence
            raise error
    return [f"{key}={_json(value)}" for key, value in (settings or {}).items()]


def _json(value) -> str:
    # NumPy's numbers are given by the Python numbers they are.
    return json.dumps(value, default=lambda number: number.item())
