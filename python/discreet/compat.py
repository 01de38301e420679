"""Certified accountants with the interface of Opacus, and imports from Opacus and dp-accounting.

    privacy_engine.accountant = discreet.compat.PLDAccountant()   # before make_private

    discreet.compat.register_with_opacus()                         # or by name
    PrivacyEngine(accountant="pld")

Importing this module needs neither library: their objects are recognised by their attributes.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, Union

from discreet.accounting import Account, Accountant, Interval, _count
from discreet.errors import refuse
from discreet.events import (
    Event,
    FixedSize,
    Gaussian,
    GaussianGroups,
    Group,
    Laplace,
    NoSampling,
    Poisson,
    TruncatedPoisson,
)

History = Iterable[tuple[float, float, int]]  # (noise_multiplier, sample_rate, steps)
Release = tuple[
    Union[NoSampling, Poisson, FixedSize, TruncatedPoisson], Union[Gaussian, GaussianGroups, Laplace], int]

# More groups than this in one subsample are probably a mistake.
_MOST_GROUPS = 100_000


# ---------------------------------------------------------------- Opacus

def from_opacus_history(history: History, *, accountant: str = "pld") -> Accountant:
    """The accountant of an Opacus `history`: Gaussian steps on Poisson subsamples, add/remove.

    history: (noise_multiplier, sample_rate, steps) entries. An entry without noise has no finite
    epsilon and is rejected.
    """
    result = Accountant(accountant)
    for noise_multiplier, sample_rate, steps in _entries(history):
        result.compose(_gaussian_step(noise_multiplier, sample_rate), steps)
    return result


class OpacusAccountant:
    """Base of the accountants below; they differ in how they bound epsilon.

    history: (noise_multiplier, sample_rate, steps) entries, as in Opacus. You may read, extend and
    replace it; every answer is computed from its current content.
    It means Gaussian noise on Poisson samples under add/remove adjacency. Opacus records the same
    for poisson_sampling=False, where that is wrong: see amplification.shuffled_epsilon.
    Noise that depends on released values needs a filter (discreet.filters), as with any accountant.
    """

    _name: str  # of the discreet.Accountant behind it

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []
        # The composed part of the history, and its accountant; see _current.
        self._composed: Counter[tuple[float, float]] = Counter()
        self._accountant = Accountant(self._name)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Records one step. A step without noise is recorded too: epsilon is then infinite."""
        noise_multiplier, sample_rate = float(noise_multiplier), float(sample_rate)
        _gaussian_step(noise_multiplier or 1.0, sample_rate)  # rejects values out of range
        if self.history and tuple(self.history[-1][:2]) == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, self.history[-1][2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def get_epsilon(self, delta: float, **settings: Any) -> float:
        """The certified upper end of epsilon: never an estimate.

        Accuracy settings of Opacus (alphas, eps_error, delta_error) are accepted but not needed.
        """
        if not settings.get("poisson", True):
            refuse("get_epsilon", "poisson must be True, but it is False: this history records Poisson samples; for "
                                  "other samplers use discreet.amplification")
        return self.get_account(delta).epsilon.upper

    def get_account(self, delta: float) -> Account[Interval, float]:
        """The full result: interval, adjacency and accountant."""
        if any(entry[0] == 0 for entry in _entries(self.history)):
            nothing = Accountant(self._name).epsilon(delta)  # rejects a delta out of range
            return dataclasses.replace(nothing, epsilon=Interval(math.inf, math.inf))
        return self._current().epsilon(delta)

    def _current(self) -> Accountant:
        # A history usually grows, and accountants cache their evaluations: compose only the entries that are new
        # since the last query, or start again if an entry was removed.
        wanted: Counter[tuple[float, float]] = Counter()
        for noise_multiplier, sample_rate, steps in _entries(self.history):
            wanted[noise_multiplier, sample_rate] += steps
        if self._composed - wanted:
            self._composed, self._accountant = Counter(), Accountant(self._name)
        for step, count in (wanted - self._composed).items():
            self._accountant.compose(_gaussian_step(*step), count)
            self._composed[step] += count
        return self._accountant

    @classmethod
    def mechanism(cls) -> str:
        """The accountant's name, under which `register_with_opacus` registers it."""
        return cls._name

    def __len__(self) -> int:
        """The number of entries of the history, as in Opacus; `steps` counts the steps."""
        return len(self.history)

    @property
    def steps(self) -> int:
        return sum(entry[2] for entry in self.history)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """A hook for Opacus's DPOptimizer that records each of its steps."""

        def hook(optimizer: Any) -> None:
            self.step(noise_multiplier=optimizer.noise_multiplier,
                      sample_rate=sample_rate * optimizer.accumulated_iterations)

        return hook

    def state_dict(self, destination: Any = None) -> Any:
        """The history and the mechanism, under Opacus's keys."""
        destination = OrderedDict() if destination is None else destination
        destination["history"] = copy.deepcopy(self.history)
        destination["mechanism"] = self.mechanism()
        return destination

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues from a state_dict of this class or of any accountant of Opacus.

        A history records releases, not how they are bounded, so the mechanisms may differ.
        """
        for key in ("history", "mechanism"):
            if not state_dict or key not in state_dict:
                refuse("load_state_dict", f"the state has no {key!r}; pass the result of state_dict()")
        if state_dict["mechanism"] not in _HISTORIES_OF:
            refuse("load_state_dict", f"the mechanism is {state_dict['mechanism']!r}; it must be one of "
                                      f"{sorted(_HISTORIES_OF)}, whose histories are known")
        history = list(_entries(state_dict["history"]))
        for noise_multiplier, sample_rate, _ in history:
            _gaussian_step(noise_multiplier or 1.0, sample_rate)  # rejects values out of range
        self.history = history


class PLDAccountant(OpacusAccountant):
    """Tight to about ten digits. Replaces Opacus's PRVAccountant."""

    _name = "pld"


class RDPAccountant(OpacusAccountant):
    """Rényi divergences, minimised over all orders."""

    _name = "rdp"

    def get_epsilon(self, delta: float, alphas: Any = None, **settings: Any) -> float:
        """The certified upper end of epsilon, over all orders: alphas are not needed."""
        return super().get_epsilon(delta, **settings)


class GDPAccountant(OpacusAccountant):
    """Exact for full batches; below rate 1 the bound is that of RDP.

    The central limit approximation, which can be far too small, is only in `get_account`, under a
    name that says so. Unlike in Opacus's GaussianAccountant, noise and rate may change.
    """

    _name = "gdp"

    def get_epsilon(self, delta: float, poisson: bool = True, **settings: Any) -> float:
        """The certified upper end of epsilon; poisson=False is rejected."""
        return super().get_epsilon(delta, poisson=poisson, **settings)


PRVAccountant = PLDAccountant
GaussianAccountant = GDPAccountant

# The mechanisms whose histories are Gaussian steps on Poisson samples.
_HISTORIES_OF = frozenset({"prv", "rdp", "gdp", "pld"})


def register_with_opacus(*, replace: bool = False) -> None:
    """Makes PrivacyEngine(accountant="pld"), and calibration with it, work in Opacus.

    replace: also replace Opacus's "prv", "rdp" and "gdp" by the accountants here.
    """
    from opacus.accountants import register_accountant

    register_accountant("pld", PLDAccountant, force=True)
    if replace:
        for name, kind in (("prv", PLDAccountant), ("rdp", RDPAccountant), ("gdp", GDPAccountant)):
            register_accountant(name, kind, force=True)


def _entries(history: Iterable[Any]) -> Iterator[tuple[float, float, int]]:
    for entry in history:
        if not isinstance(entry, (tuple, list)) or len(entry) != 3:
            refuse("history", f"an entry of the history is {entry!r}; it must be "
                              "(noise_multiplier, sample_rate, steps)")
        noise_multiplier, sample_rate, steps = entry
        yield float(noise_multiplier), float(sample_rate), _count("steps", steps, least=1)


def _gaussian_step(noise_multiplier: float, sample_rate: float) -> Event:
    return Event(Gaussian(noise_multiplier),
                 NoSampling() if sample_rate == 1 else Poisson(sample_rate))


# ---------------------------------------------------------------- dp-accounting

def from_dp_event(event: Any, *, accountant: str = "pld",
                  adjacency: str = "add_remove") -> Accountant:
    """The accountant of a dp-accounting event tree. An event without a bound is rejected by name."""
    result = Accountant(accountant)
    for one, count in events_of_dp_event(event, adjacency=adjacency):
        result.compose(one, count)
    return result


def events_of_dp_event(event: Any, *, adjacency: str = "add_remove") -> list[tuple[Event, int]]:
    """A dp-accounting event tree as events, each with its number of occurrences.

    Supported are NoOp, Gaussian, Laplace, Composed and SelfComposed events, PoissonSampled and
    SampledWithoutReplacement of Gaussians (several in one sample equal one Gaussian) or of one
    Laplace, and TruncatedSubsampledGaussian. Any other event is rejected by name.
    adjacency: "add_remove", "zero_out" (dp-accounting's REPLACE_SPECIAL) or "replace_one".
    """
    found: list[tuple[Event, int]] = []
    for sampling, mechanism, count in _walk(event, 1):
        found.append((Event(mechanism, sampling, adjacency=adjacency), count))
    return found


def _walk(event: Any, times: int) -> Iterator[Release]:
    """(sampling, mechanism, count) of every release in the tree."""
    kind = type(event).__name__
    if kind == "NoOpDpEvent":
        return
    if kind == "ComposedDpEvent":
        for part in event.events:
            yield from _walk(part, times)
    elif kind == "SelfComposedDpEvent":
        count = _count("SelfComposedDpEvent.count", event.count, least=0)
        for sampling, mechanism, inner in _walk(event.event, 1):
            if count:
                yield sampling, mechanism, inner * count * times
    elif kind == "PoissonSampledDpEvent":
        yield from _sampled(kind, Poisson(event.sampling_probability), event.event, times)
    elif kind == "SampledWithoutReplacementDpEvent":
        sampling = FixedSize(_count("sample_size", event.sample_size, least=1),
                             _count("source_dataset_size", event.source_dataset_size, least=1))
        yield from _sampled(kind, sampling, event.event, times)
    elif kind == "TruncatedSubsampledGaussianDpEvent":
        sampling = TruncatedPoisson(
            event.sampling_probability,
            _count("truncated_batch_size", event.truncated_batch_size, least=1),
            _count("dataset_size", event.dataset_size, least=1))
        yield sampling, Gaussian(event.noise_multiplier), times
    elif kind == "GaussianDpEvent":
        yield NoSampling(), Gaussian(event.noise_multiplier), times
    elif kind == "LaplaceDpEvent":
        yield NoSampling(), Laplace(event.noise_multiplier), times
    else:
        refuse("from_dp_event", f"{kind} is not supported; describe its releases with discreet.events")


def _sampled(kind: str, sampling: Poisson | FixedSize, event: Any, times: int) -> Iterator[Release]:
    """The releases of one sample. Accounting its parts as separate samples would underestimate the cost."""
    parts = list(_walk(event, 1))
    if not parts:
        return
    if any(not isinstance(inner, NoSampling) for inner, _, _ in parts):
        refuse("from_dp_event", f"{kind} contains another sampling event; give the single sampling that both equal")
    total = sum(count for _, _, count in parts)
    if total == 1:
        yield sampling, parts[0][1], times
        return
    gaussians = [(mechanism, count) for _, mechanism, count in parts if isinstance(mechanism, Gaussian)]
    if len(gaussians) != len(parts):
        refuse("from_dp_event", f"{kind} contains several releases of one sample, and not all are Gaussian; there is no "
                                "joint bound for them")
    if total > _MOST_GROUPS:
        refuse("from_dp_event", f"{kind} contains {total} releases of one sample; give at most {_MOST_GROUPS}, or the "
                                "single Gaussian that they equal")
    groups = [Group(mechanism.noise_multiplier, 1.0) for mechanism, count in gaussians for _ in range(count)]
    yield sampling, GaussianGroups(groups), times
