"""Certified privacy accounting.

    >>> import discreet
    >>> spent = discreet.account(sampling_rate=0.01, noise_multiplier=1.0, steps=1000, delta=1e-5)
    >>> round(spent.epsilon.upper, 6)
    1.828237
"""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar, overload

from discreet import _core
from discreet.errors import refuse

Epsilon = TypeVar("Epsilon", "Interval", float)
Delta = TypeVar("Delta", "Interval", float)


@dataclasses.dataclass(frozen=True)
class Interval:
    """A quantity that is certified to lie in [lower, upper]. Use upper for decisions."""

    lower: float
    upper: float


@dataclasses.dataclass(frozen=True)
class Account(Generic[Epsilon, Delta]):
    """The privacy cost of a schedule. One of epsilon and delta was given; the other is an Interval."""

    epsilon: Epsilon
    delta: Delta
    adjacency: str
    accountant: str
    path: str | None = None  # the method that certified it: "closed_form", "contour" and so on
    worst_direction: str | None = None  # "remove" or "add"
    # gdp: epsilon by the central limit theorem. Not a bound; it may be far too small.
    clt_epsilon_not_a_bound: float | None = None


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The best setting for which epsilon.upper is at most the target."""

    noise_multiplier: float
    sampling_rate: float
    steps: int
    epsilon: Interval
    delta: float
    adjacency: str
    proven: bool  # a setting better by 1e-4 relative (or one step) is certified to exceed the target


class Accountant:
    """An accountant selected by name: compose events, then ask for epsilon. Order does not matter.

    name: "pld" (tightest), "rdp", "moments", "gdp" or "f_dp". An event that the accountant cannot
    bound, or whose adjacency differs from that of earlier events, is rejected by name.
    log_space_accounting: form sums of log-moments as logarithms, for very long runs.
    Answers hold for schedules that are fixed in advance; noise that depends on releases needs a
    filter (discreet.filters).
    """

    def __init__(self, name: str = "pld", *, log_space_accounting: bool = False) -> None:
        self._core = _core.make_accountant(name, log_space_accounting)

    def compose(self, event: _core.Event, count: int = 1) -> Accountant:
        """Records `count` occurrences of the event."""
        self._core.compose(event, _count("count", count, least=1))
        return self

    def epsilon(self, delta: float) -> Account[Interval, float]:
        """Epsilon for a delta in (0, 1). The lower end is 0 if the accountant has no lower bound."""
        lower, upper, clt = self._core.epsilon(delta)
        return Account(Interval(lower, upper), delta, self.adjacency, self.name,
                       clt_epsilon_not_a_bound=clt)

    def delta(self, epsilon: float) -> Account[float, Interval]:
        """Delta for an epsilon of at least 0."""
        return Account(epsilon, Interval(*self._core.delta(epsilon)), self.adjacency, self.name)

    def group_epsilon(self, delta: float, group_size: int) -> Account[Interval, float]:
        """Epsilon of these events for up to group_size records together, such as those of one person.

        It compares all of them present with all of them absent, in both directions. The certificate
        is that of pld, for every accountant. Events that it cannot certify are rejected by name.
        """
        lower, upper, path, worst = self._core.group_epsilon(
            delta, _count("group_size", group_size, least=1))
        return Account(Interval(lower, upper), delta, self.adjacency, "pld", path, worst)

    def save(self) -> bytes:
        """The state as deterministic CBOR; `restore` reads it back bit for bit."""
        return self._core.save()

    @staticmethod
    def restore(name: str, saved: bytes) -> Accountant:
        accountant = Accountant(name)
        accountant._core.restore(saved)
        return accountant

    def __reduce__(self) -> tuple[object, tuple[str, bytes]]:
        return Accountant.restore, (self.name, self.save())

    def __copy__(self) -> Accountant:
        copy = Accountant.__new__(Accountant)
        copy._core = self._core.clone()
        return copy

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def adjacency(self) -> str:
        """Adjacency of the events; "add_remove" if there are none."""
        return self._core.adjacency


class PldAccountant:
    """The privacy cost of a run: add steps, then ask for epsilon. Order does not matter."""

    def __init__(self, adjacency: str = "add_remove") -> None:
        self._core = _core.PldAccountant(adjacency)

    def add(self, *, sampling_rate: float, noise_multiplier: float, steps: int = 1) -> None:
        """Records Gaussian steps on Poisson subsamples; sampling_rate 1 is a full batch."""
        self._core.add(sampling_rate, noise_multiplier, _count("steps", steps, least=1))

    def epsilon(self, delta: float, *, verify: bool = False, group_size: int = 1) -> Account[Interval, float]:
        """Epsilon for a delta in (0, 1).

        verify: evaluate every independent method and compare the results.
        group_size: epsilon for this many records together, such as those of one person: all of them
        present compared with all of them absent. It covers every smaller group too.
        """
        if group_size != 1:
            if verify:
                refuse("epsilon", f"verify needs group_size 1, but group_size is {group_size!r}; set one of the two only")
            result = self._core.group_epsilon(delta, _count("group_size", group_size, least=1))
        else:
            result = self._core.verify(delta) if verify else self._core.epsilon(delta)
        lower, upper, path, worst = result
        return Account(Interval(lower, upper), delta, self.adjacency, "pld", path, worst)

    def delta(self, epsilon: float, *, group_size: int = 1) -> Account[float, Interval]:
        """Delta for an epsilon of at least 0; group_size as for `epsilon`."""
        lower, upper, path, worst = (
            self._core.delta(epsilon) if group_size == 1 else
            self._core.group_delta(epsilon, _count("group_size", group_size, least=1)))
        return Account(epsilon, Interval(lower, upper), self.adjacency, "pld", path, worst)

    def would_exceed(self, *, sampling_rate: float, noise_multiplier: float, steps: int = 1,
                     target_epsilon: float, delta: float) -> bool:
        """True if these further steps would raise the upper end of epsilon above the target."""
        return self._core.would_exceed(sampling_rate, noise_multiplier,
                                       _count("steps", steps, least=1), target_epsilon, delta)

    def save(self) -> bytes:
        """The state as deterministic CBOR; `restore` reads it back bit for bit."""
        return self._core.save()

    @staticmethod
    def restore(saved: bytes) -> PldAccountant:
        accountant = PldAccountant.__new__(PldAccountant)
        accountant._core = _core.PldAccountant.restore(saved)
        return accountant

    @property
    def steps(self) -> int:
        return self._core.steps

    @property
    def adjacency(self) -> str:
        return self._core.adjacency


@overload
def account(*, sampling_rate: float, noise_multiplier: float, steps: int, delta: float,
            adjacency: str = ..., group_size: int = ...) -> Account[Interval, float]: ...
@overload
def account(*, sampling_rate: float, noise_multiplier: float, steps: int, epsilon: float,
            adjacency: str = ..., group_size: int = ...) -> Account[float, Interval]: ...
def account(*, sampling_rate: float, noise_multiplier: float, steps: int,
            delta: float | None = None, epsilon: float | None = None, adjacency: str = "add_remove",
            group_size: int = 1) -> Account[Interval, float] | Account[float, Interval]:
    """Certified epsilon for a delta, or delta for an epsilon, of Gaussian steps.

    sampling_rate: probability that a record takes part in a step (Poisson), in (0, 1].
    noise_multiplier: standard deviation of the noise divided by the clip norm, above 0.
    steps: number of steps, at least 0.
    adjacency: "add_remove", "zero_out" or (with sampling_rate 1) "replace_one".
    group_size: the bound for this many records together, such as those of one person: all of them
    present compared with all of them absent (or replaced). It covers every smaller group too. At a
    fixed delta, epsilon can grow faster than group_size.
    """
    if (delta is None) == (epsilon is None):
        refuse("account", "give either delta, to get epsilon, or epsilon, to get delta; "
                          f"found delta={delta!r}, epsilon={epsilon!r}")
    accountant = PldAccountant(adjacency)
    # Rate and noise are checked even if there are no steps.
    probe = accountant if _count("steps", steps, least=0) else PldAccountant(adjacency)
    probe.add(sampling_rate=sampling_rate, noise_multiplier=noise_multiplier, steps=max(steps, 1))
    if delta is not None:
        return accountant.epsilon(delta, group_size=group_size)
    assert epsilon is not None
    return accountant.delta(epsilon, group_size=group_size)


def calibrate(*, target_epsilon: float, delta: float, sampling_rate: float | None = None,
              noise_multiplier: float | None = None, steps: int | None = None,
              group_size: int = 1) -> Calibration:
    """The smallest noise, largest number of steps or largest rate for a target; give the other two.

    The result is certified: epsilon.upper is at most target_epsilon, for group_size records
    together as in `account`. Of steps it is the last number: one more is not certified to fit.
    """
    group_size = _count("group_size", group_size, least=1)
    if noise_multiplier is None and sampling_rate is not None and steps is not None:
        noise_multiplier, result, proven = _core.calibrate_noise_multiplier(
            sampling_rate, _count("steps", steps, least=1), target_epsilon, delta, group_size)
    elif steps is None and sampling_rate is not None and noise_multiplier is not None:
        steps, result, proven = _core.calibrate_steps(
            sampling_rate, noise_multiplier, target_epsilon, delta, group_size)
    elif sampling_rate is None and noise_multiplier is not None and steps is not None:
        sampling_rate, result, proven = _core.calibrate_rate(
            noise_multiplier, _count("steps", steps, least=1), target_epsilon, delta, group_size)
    else:
        given = {"sampling_rate": sampling_rate, "noise_multiplier": noise_multiplier, "steps": steps}
        names = ", ".join(name for name, value in given.items() if value is not None) or "none of them"
        refuse("calibrate", f"give exactly two of sampling_rate, noise_multiplier and steps; found {names}")
    return Calibration(noise_multiplier, sampling_rate, steps, Interval(*result[:2]), delta,
                       "add_remove", proven)


def _count(name: str, value: int, *, least: int) -> int:
    if isinstance(value, bool) or int(value) != value or not least <= value < 2**63:
        refuse(name, f"{name} is {value!r}; it must be an integer of at least {least}")
    return int(value)
