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
from typing import Any, Union, cast

from discreet import _core
from discreet._core import Clipped, Sampler, clip
from discreet.accounting import Account, Interval
from discreet.errors import Error, refuse

__all__ = ["Budget", "Clipped", "Config", "Mechanism", "Sampler", "Step", "Tensor", "clip",
           "ghost_bound", "load_config"]

ConfigSource = Union[str, "os.PathLike[str]", Mapping[str, Any]]
_UPWARDS = decimal.Context(prec=6, rounding=decimal.ROUND_CEILING)  # the printed number is a bound


@dataclasses.dataclass(frozen=True)
class Config:
    """A valid configuration with every key filled in."""

    yaml: str  # every setting; reading it gives the same hash
    hash: str  # SHA-256 of the canonical form: equal meaning gives an equal hash
    notes: list[str]  # what was changed or has no effect; for people
    not_private: list[str]  # why a run of it is marked not_private; empty if it is private


@dataclasses.dataclass(frozen=True)
class Tensor:
    """The properties of a tensor in a layout, besides its name.

    layer: by default the name up to its last dot; group: by default the layer.
    adapter: the low-rank or prefix module that it belongs to.
    experts: the number of experts of which it holds the parameters, and the dimension that they divide.
    """

    shape: tuple[int, ...] = ()
    layer: str = ""
    group: str = ""
    trainable: bool = True
    adapter: str = ""
    experts: tuple[int, int] | None = None


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
    """The result of one optimizer step.

    You may publish only `gradients`, `epsilon` and `released`: `metrics` and `trace` contain values
    that depend on the records and have no noise.
    """

    t: int
    # name → noisy average, of run.compute_dtype (bfloat16: float32 arrays of such values).
    gradients: dict[str, Any]
    epsilon: Budget
    metrics: dict[str, Any]  # confidential
    released: dict[str, Any] | None  # noised clip fractions, under metrics.release: dp
    warnings: list[str]
    trace: dict[str, Any]  # the `iter` line; confidential


def load_config(config: ConfigSource, settings: Mapping[str, Any] | None = None) -> Config:
    """Reads, checks and resolves a configuration; discreet.Error says what is wrong and where.

    config: YAML text, the path of a file (a PathLike, or a string ending in .yaml or .yml), or the
        dictionary that such a file would contain.
    settings: key → value; overrides the configuration, like `discreet check --set`.
    """
    return Config(*_core.load_config(*_text(config), _settings(settings)))


class Mechanism:
    """The private step: clips microbatches, adds noise, and accounts before it releases.

    A call that fails raises discreet.Error, releases nothing, and leaves the state unchanged.

    config, settings: as for load_config.
    layout: name → shape of a tensor without the records dimension, or a Tensor.
    key: 32 secret bytes from which noise and batches are drawn; by default a fresh key. Keep it to
        continue after a restart, and never use it for another run. With secure: false the
        configuration's seed is used instead, and the run is not private.
    routing: the declared share of records of each expert. The trace states the rates that would follow; they are no bound,
        so epsilon does not depend on them.
    data_commitment: SHA-256 digest of a commitment to the data, bound into the replay tokens.
    threads: does not affect results.
    """

    def __init__(self, config: ConfigSource,
                 layout: Mapping[str, Sequence[int] | Tensor], *, key: bytes | None = None,
                 data_commitment: bytes | None = None, settings: Mapping[str, Any] | None = None,
                 threads: int = 1, routing: Sequence[float] | None = None) -> None:
        experts = {name: tensor.experts for name, tensor in layout.items()
                   if isinstance(tensor, Tensor) and tensor.experts}
        self._core = _core.MechanismSession(*_text(config), _settings(settings), _tensors(layout), key,
                                            data_commitment, threads, experts,
                                            None if routing is None else list(routing))

    def apply(self, gradients: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Step:
        """One optimizer step.

        gradients: the dictionary name → array [records, ...] of its single microbatch, or a list of
            them, one for each of gradient_accumulation_steps. Arrays are float32 or float64,
            C-contiguous, and never copied. Tensors that are public or not trainable are optional;
            they are not read and receive no gradient.
        """
        all_of_them = [gradients] if isinstance(gradients, Mapping) else gradients
        return self._step(self._core.apply([dict(one) for one in all_of_them]))

    def accumulate(self, gradients: Mapping[str, Any]) -> None:
        """Clips one microbatch and adds it to the step; release() finishes the step."""
        self._core.accumulate(dict(gradients))

    def release(self) -> Step:
        """Releases the step of the accumulated microbatches."""
        return self._step(self._core.release())

    def sampler(self, rows: int) -> Sampler:
        """Selects the records of each step from 0 … rows − 1, by the configured law."""
        return self._core.sampler(rows)

    @property
    def t(self) -> int:
        """The number of completed optimizer steps."""
        return self._core.t()

    @property
    def spent(self) -> Account[Interval, float]:
        """The cost so far. Use epsilon.upper for decisions."""
        _, delta, adjacency, accountant = self._core.budget()
        return Account(Interval(*self._core.spent()), delta, adjacency, accountant)

    @property
    def config(self) -> Config:
        """The resolved configuration."""
        return Config(self._core.yaml(), self._core.hash(), self._core.notes(), self.not_private)

    @property
    def not_private(self) -> list[str]:
        """Why the run is marked not_private; empty if it is private."""
        return self._core.not_private()

    @property
    def most_records(self) -> int:
        """The maximum number of records of a step; larger batches are rejected."""
        return self._core.most_records()

    @property
    def replay(self) -> str:
        """dp_replay_t of the current state."""
        return self._core.replay()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of save()."""
        return self._core.fingerprint()

    def save(self) -> bytes:
        """The state as deterministic CBOR, without the key. Confidential: it contains raw sums."""
        return self._core.save()

    def restore(self, saved: bytes, released: int | None = None) -> None:
        """Restores the output of save() for the same configuration and layout.

        released: the number of steps that the run had released when it stopped. If it equals the t
        of the saved state, the run continues bit for bit. If it is larger, the steps in between are
        executed again, possibly on other gradients: noise comes from a fresh stream, the released
        steps are charged again, and the batches must be drawn again (a sampler created afterwards
        does that). Required for secure runs.
        """
        self._core.restore(saved, released)

    @property
    def lineage(self) -> str:
        """The name of the noise stream after steps were executed again; otherwise empty."""
        return self._core.lineage()

    def trace_header(self) -> dict[str, Any]:
        """The `run_header` line of the trace."""
        return cast("dict[str, Any]", self._core.trace_header())

    def trace_end(self) -> dict[str, Any]:
        """The `run_end` line of the trace."""
        return cast("dict[str, Any]", self._core.trace_end())

    def failure(self, error: Error) -> dict[str, Any]:
        """The `failure` line of the trace, for an error that ended the run."""
        return cast("dict[str, Any]", self._core.failure(error.code, error.op, error.sentence))

    def _step(self, raw: dict[str, Any]) -> Step:
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


def ghost_bound(config: ConfigSource, layout: Mapping[str, Sequence[int] | Tensor],
                settings: Mapping[str, Any] | None = None) -> str:
    """The bound of ghost clipping for this layout and batch size, as the text of a JSON file.

    With regulated: true, ghost clipping needs an audit of this file; ghost_bound_hash is its SHA-256.
    """
    return _core.ghost_bound(*_text(config), _settings(settings), _tensors(layout))


def _tensors(layout: Mapping[str, Sequence[int] | Tensor]) -> list[tuple[Any, ...]]:
    """The layout in the form of the core."""
    out = []
    for name, tensor in layout.items():
        if not isinstance(tensor, Tensor):
            tensor = Tensor(tuple(tensor))
        out.append((name, list(tensor.shape), tensor.layer, tensor.group, tensor.trainable, tensor.adapter))
    return out


def _text(config: ConfigSource) -> tuple[bytes, str]:
    """The YAML of a configuration, and its name in errors."""
    if isinstance(config, Mapping):
        return _json(config).encode(), "config"  # JSON is YAML
    if isinstance(config, str) and not config.endswith((".yaml", ".yml")):
        return config.encode(), "config"
    return pathlib.Path(config).read_bytes(), os.fspath(config)


def _settings(settings: Mapping[str, Any] | None) -> list[str]:
    for key in settings or {}:
        if not isinstance(key, str) or not key or "=" in key or any(c.isspace() for c in key):
            refuse("settings", f"settings has the key {key!r}; expected the name of a configuration key, without = and spaces")
    return [f"{key}={_json(value)}" for key, value in (settings or {}).items()]


def _json(value: object) -> str:
    # NumPy's numbers have an equal Python number.
    return json.dumps(value, default=lambda number: number.item())
