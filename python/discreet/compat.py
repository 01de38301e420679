"""Certified accountants in the shape of Opacus, and imports from Opacus and dp-accounting.

    privacy_engine.accountant = discreet.compat.PLDAccountant()   # before make_private

    discreet.compat.register_with_opacus()                         # or by name
    PrivacyEngine(accountant="pld")

Neither library is needed to import this module: their objects are recognised by what they have.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from discreet.accounting import Account, Accountant, Interval, _count, _refuse
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

# Groups beyond this many in one subsample are more likely a mistake than a model.
_MOST_GROUPS = 100_000


# ---------------------------------------------------------------- Opacus

def from_opacus_history(history: History, *, accountant: str = "pld") -> Accountant:
    """The accountant of an Opacus `history`: Gaussian steps on Poisson subsamples, add/remove.

    history: (noise_multiplier, sample_rate, steps) entries. One without noise has no finite epsilon
    and is refused.
    """
    result = Accountant(accountant)
    for noise_multiplier, sample_rate, steps in _entries(history):
        result.compose(_gaussian_step(noise_multiplier, sample_rate), steps)
    return result


class OpacusAccountant:
    """Base of the accountants below; they differ in how epsilon is bounded.

    history: (noise_multiplier, sample_rate, steps) entries, as in Opacus. It may be read, extended
    and replaced; every answer is computed from what it holds.
    Its meaning is Gaussian noise on Poisson samples under add/remove adjacency. Opacus records the
    same for poisson_sampling=False, where it does not hold: see amplification.shuffled_epsilon.
    Noise that reacts to released values needs a filter (discreet.filters), as with any accountant.
    """

    _name: str  # of the discreet.Accountant behind it

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []
        # What has been composed so far, and into what; see _current.
        self._composed: Counter[tuple[float, float]] = Counter()
        self._accountant = Accountant(self._name)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Records one step. No noise is recorded too: epsilon is infinite from then on."""
        noise_multiplier, sample_rate = float(noise_multiplier), float(sample_rate)
        _gaussian_step(noise_multiplier or 1.0, sample_rate)  # refuses values out of range
        if self.history and tuple(self.history[-1][:2]) == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, self.history[-1][2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def get_epsilon(self, delta: float, **settings: Any) -> float:
        """The certified upper end of epsilon: never an estimate.

        Accuracy settings of Opacus (alphas, eps_error, delta_error) are accepted and not needed.
        """
        if not settings.get("poisson", True):
            _refuse("get_epsilon", "poisson is False; this history is about Poisson samples, and "
                                   "the bound for other samplers is in discreet.amplification")
        return self.get_account(delta).epsilon.upper

    def get_account(self, delta: float) -> Account:
        """Everything known about epsilon: the interval, adjacency and accountant."""
        if any(entry[0] == 0 for entry in _entries(self.history)):
            nothing = Accountant(self._name).epsilon(delta)  # refuses a delta out of range
            return dataclasses.replace(nothing, epsilon=Interval(math.inf, math.inf))
        return self._current().epsilon(delta)

    def _current(self) -> Accountant:
        # A history mostly grows, and accountants keep what they have evaluated: compose what is new
        # since the last question, or start again if something has gone.
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
        """The accountant's name, under which `register_with_opacus` makes it known."""
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

        A history says what was released, not how it is bounded, so the mechanisms may differ.
        """
        for key in ("history", "mechanism"):
            if not state_dict or key not in state_dict:
                _refuse("load_state_dict", f"the state has no {key!r}; give what state_dict made")
        if state_dict["mechanism"] not in _HISTORIES_OF:
            _refuse("load_state_dict", f"the mechanism is {state_dict['mechanism']!r}, whose "
                                       f"history is unknown; known are {sorted(_HISTORIES_OF)}")
        history = list(_entries(state_dict["history"]))
        for noise_multiplier, sample_rate, _ in history:
            _gaussian_step(noise_multiplier or 1.0, sample_rate)  # refuses values out of range
        self.history = history


class PLDAccountant(OpacusAccountant):
    """Tight to about ten digits. Takes the place of Opacus's PRVAccountant."""

    _name = "pld"


class RDPAccountant(OpacusAccountant):
    """Rényi divergences, minimised over all orders."""

    _name = "rdp"

    def get_epsilon(self, delta: float, alphas: Any = None, **settings: Any) -> float:
        """The certified upper end of epsilon, over all orders: alphas are not needed."""
        return super().get_epsilon(delta, **settings)


class GDPAccountant(OpacusAccountant):
    """Exact for full batches; below rate 1 the bound is that of RDP.

    The central limit approximation, which can be far below the truth, is only in `get_account`,
    named as what it is. Noise and rate may change, unlike in Opacus's GaussianAccountant.
    """

    _name = "gdp"

    def get_epsilon(self, delta: float, poisson: bool = True, **settings: Any) -> float:
        """The certified upper end of epsilon; poisson=False is refused."""
        return super().get_epsilon(delta, poisson=poisson, **settings)


PRVAccountant = PLDAccountant
GaussianAccountant = GDPAccountant

# The mechanisms whose histories are Gaussian steps on Poisson samples.
_HISTORIES_OF = frozenset({"prv", "rdp", "gdp", "pld"})


def register_with_opacus(*, replace: bool = False) -> None:
    """Makes PrivacyEngine(accountant="pld") and calibration with it work in Opacus.

    replace: also puts the accountants here in the place of Opacus's "prv", "rdp" and "gdp".
    """
    from opacus.accountants import register_accountant

    register_accountant("pld", PLDAccountant, force=True)
    if replace:
        for name, kind in (("prv", PLDAccountant), ("rdp", RDPAccountant), ("gdp", GDPAccountant)):
            register_accountant(name, kind, force=True)


def _entries(history):
    for entry in history:
        if not isinstance(entry, (tuple, list)) or len(entry) != 3:
            _refuse("history", f"an entry of the history is {entry!r}; give "
                               "(noise_multiplier, sample_rate, steps)")
        noise_multiplier, sample_rate, steps = entry
        yield float(noise_multiplier), float(sample_rate), _count("steps", steps, least=1)


def _gaussian_step(noise_multiplier: float, sample_rate: float) -> Event:
    return Event(Gaussian(noise_multiplier),
                 NoSampling() if sample_rate == 1 else Poisson(sample_rate))


# ---------------------------------------------------------------- dp-accounting

def from_dp_event(event: Any, *, accountant: str = "pld",
                  adjacency: str = "add_remove") -> Accountant:
    """The accountant of a dp-accounting event tree. An event without a bound is refused by name."""
    result = Accountant(accountant)
    for one, count in events_of_dp_event(event, adjacency=adjacency):
        result.compose(one, count)
    return result


def events_of_dp_event(event: Any, *, adjacency: str = "add_remove") -> list[tuple[Event, int]]:
    """A dp-accounting event tree as events and how often each happens.

    Understood are NoOp, Gaussian, Laplace, Composed and SelfComposed events, PoissonSampled and
    SampledWithoutReplacement of those with Gaussians (several in one sample are one Gaussian) or
    one Laplace, and TruncatedSubsampledGaussian. Any other is refused by name.
    adjacency: "add_remove", "zero_out" (dp-accounting's REPLACE_SPECIAL) or "replace_one".
    """
    found: list[tuple[Event, int]] = []
    for sampling, mechanism, count in _walk(event, 1):
        found.append((Event(mechanism, sampling, adjacency=adjacency), count))
    return found


def _walk(event, times):
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
        _refuse("from_dp_event", f"{kind} is not understood; describe what it releases with "
                                 "discreet.events")


def _sampled(kind, sampling, event, times):
    """What is released of one sample. Summing its parts as if each had its own under-counts."""
    parts = list(_walk(event, 1))
    if not parts:
        return
    if any(not isinstance(inner, NoSampling) for inner, _, _ in parts):
        _refuse("from_dp_event", f"{kind} holds another sampling; give the one that both are")
    total = sum(count for _, _, count in parts)
    if total == 1:
        yield sampling, parts[0][1], times
        return
    if any(not isinstance(mechanism, Gaussian) for _, mechanism, _ in parts):
        _refuse("from_dp_event", f"{kind} holds several releases of one sample and not all are "
                                 "Gaussian; there is no bound for them together")
    if total > _MOST_GROUPS:
        _refuse("from_dp_event", f"{kind} holds {total} releases of one sample; give at most "
                                 f"{_MOST_GROUPS}, or one Gaussian that they are")
    groups = [Group(mechanism.noise_multiplier, 1.0)
              for _, mechanism, count in parts for _ in range(count)]
    yield sampling, GaussianGroups(groups), times
