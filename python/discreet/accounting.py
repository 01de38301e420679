"""Certified privacy accounting.

    >>> import discreet
    >>> spent = discreet.account(sampling_rate=0.01, noise_multiplier=1.0, steps=1000, delta=1e-5)
    >>> round(spent.epsilon.upper, 6)
    1.828237
"""

from __future__ import annotations

import dataclasses

from discreet import _core
from discreet.errors import Error


@dataclasses.dataclass(frozen=True)
class Interval:
    """A quantity that certainly lies in [lower, upper]; decide by upper."""

    lower: float
    upper: float


@dataclasses.dataclass(frozen=True)
class Account:
    """What a schedule spends. One of epsilon and delta was given, the other is an Interval."""

    epsilon: Interval | float
    delta: Interval | float
    adjacency: str
    accountant: str
    path: str | None = None  # what certified it: "closed_form", "contour" and so on
    worst_direction: str | None = None  # "remove" or "add"
    # gdp: epsilon by the central limit theorem. Not a bound, and possibly far below the truth.
    clt_epsilon_not_a_bound: float | None = None


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The best setting that keeps epsilon.upper at or below the target."""

    noise_multiplier: float
    sampling_rate: float
    steps: int
    epsilon: Interval
    delta: float
    adjacency: str
    proven: bool  # a setting better by 1e-4 relative (or one step) is certified to break the target


class Accountant:
    """Any accountant by its name: compose events, ask for epsilon. Order does not matter.

    name: "pld" (tightest), "rdp", "moments", "gdp" or "f_dp". An event that it cannot bound is
    refused by name, and so is one under another adjacency than the events before it.
    log_space_accounting: sums of log-moments as logarithms, for very long runs.
    Answers are for schedules fixed in advance; noise that reacts to releases needs a filter
    (discreet.filters).
    """

    def __init__(self, name: str = "pld", *, log_space_accounting: bool = False) -> None:
        self._core = _core.make_accountant(name, log_space_accounting)

    def compose(self, event: _core.Event, count: int = 1) -> Accountant:
        """Records that the event happened `count` times."""
        self._core.compose(event, _count("count", count, least=1))
        return self

    def epsilon(self, delta: float) -> Account:
        """Epsilon for a delta in (0, 1). The lower end is 0 where the accountant has none."""
        lower, upper, clt = self._core.epsilon(delta)
        return Account(Interval(lower, upper), delta, self.adjacency, self.name,
                       clt_epsilon_not_a_bound=clt)

    def delta(self, epsilon: float) -> Account:
        """Delta for an epsilon of at least 0."""
        return Account(epsilon, Interval(*self._core.delta(epsilon)), self.adjacency, self.name)

    def group_epsilon(self, delta: float, group_size: int) -> Account:
        """Epsilon of these events for up to group_size records together, such as one person's.

        All of them present against all of them absent, in both directions, whatever the accountant:
        the certificate is that of pld. Rejects by name what it cannot certify.
        """
        lower, upper, path, worst = self._core.group_epsilon(
            delta, _count("group_size", group_size, least=1))
        return Account(Interval(lower, upper), delta, self.adjacency, "pld", path, worst)

    def save(self) -> bytes:
        """The state as deterministic CBOR; `restore` gives it back bit for bit."""
        return self._core.save()

    @staticmethod
    def restore(name: str, saved: bytes) -> Accountant:
        accountant = Accountant(name)
        accountant._core.restore(saved)
        return accountant

    def __reduce__(self):
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
        """Of the events; "add_remove" while there are none."""
        return self._core.adjacency


class PldAccountant:
    """The privacy spent by a run: add steps, ask for epsilon. Order does not matter."""

    def __init__(self, adjacency: str = "add_remove") -> None:
        self._core = _core.PldAccountant(adjacency)

    def add(self, *, sampling_rate: float, noise_multiplier: float, steps: int = 1) -> None:
        """Records Gaussian steps on Poisson subsamples; sampling_rate 1 is the full batch."""
        self._core.add(sampling_rate, noise_multiplier, _count("steps", steps, least=1))

    def epsilon(self, delta: float, *, verify: bool = False, group_size: int = 1) -> Account:
        """Epsilon for a delta in (0, 1); verify evaluates every independent path and compares.

        group_size: for so many records together, such as one person's: all of them present against
        all of them absent, and every smaller group.
        """
        if group_size != 1:
            if verify:
                _refuse("epsilon", "verify compares the paths of one record; leave out group_size")
            result = self._core.group_epsilon(delta, _count("group_size", group_size, least=1))
        else:
            result = self._core.verify(delta) if verify else self._core.epsilon(delta)
        lower, upper, path, worst = result
        return Account(Interval(lower, upper), delta, self.adjacency, "pld", path, worst)

    def delta(self, epsilon: float, *, group_size: int = 1) -> Account:
        """Delta for an epsilon of at least 0; group_size as in `epsilon`."""
        lower, upper, path, worst = (
            self._core.delta(epsilon) if group_size == 1 else
            self._core.group_delta(epsilon, _count("group_size", group_size, least=1)))
        return Account(epsilon, Interval(lower, upper), self.adjacency, "pld", path, worst)

    def would_exceed(self, *, sampling_rate: float, noise_multiplier: float, steps: int = 1,
                     target_epsilon: float, delta: float) -> bool:
        """Whether these further steps would bring epsilon's upper end past the target."""
        return self._core.would_exceed(sampling_rate, noise_multiplier,
                                       _count("steps", steps, least=1), target_epsilon, delta)

    def save(self) -> bytes:
        """The state as deterministic CBOR; `restore` gives it back bit for bit."""
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


def account(*, sampling_rate: float, noise_multiplier: float, steps: int,
            delta: float | None = None, epsilon: float | None = None,
            adjacency: str = "add_remove", group_size: int = 1) -> Account:
    """Certified epsilon for a delta, or delta for an epsilon, of Gaussian steps.

    sampling_rate: probability with which a record takes part in a step (Poisson), in (0, 1].
    noise_multiplier: standard deviation of the noise divided by the clip norm, above 0.
    steps: number of steps, at least 0.
    adjacency: "add_remove", "zero_out" or (with sampling_rate 1) "replace_one".
    group_size: for so many records together, such as one person's: all of them present against all
    of them absent (or replaced), and every smaller group. At a fixed delta epsilon can grow faster
    than group_size.
    """
    if (delta is None) == (epsilon is None):
        _refuse("account", "give either delta, to get epsilon, or epsilon, to get delta")
    accountant = PldAccountant(adjacency)
    # Steps of no count are still checked for their rate and noise.
    probe = accountant if _count("steps", steps, least=0) else PldAccountant(adjacency)
    probe.add(sampling_rate=sampling_rate, noise_multiplier=noise_multiplier, steps=max(steps, 1))
    if delta is not None:
        return accountant.epsilon(delta, group_size=group_size)
    return accountant.delta(epsilon, group_size=group_size)


def calibrate(*, target_epsilon: float, delta: float, sampling_rate: float | None = None,
              noise_multiplier: float | None = None, steps: int | None = None,
              group_size: int = 1) -> Calibration:
    """The least noise, most steps or largest rate for a target; give the other two.

    The result is certified: epsilon.upper is at most target_epsilon, for group_size records
    together as in `account`.
    """
    group_size = _count("group_size", group_size, least=1)
    given = (sampling_rate, noise_multiplier, steps)
    if sum(value is None for value in given) != 1:
        _refuse("calibrate", "give two of sampling_rate, noise_multiplier and steps")
    if noise_multiplier is None:
        found, result, proven = _core.calibrate_noise_multiplier(
            sampling_rate, _count("steps", steps, least=1), target_epsilon, delta, group_size)
        noise_multiplier = found
    elif steps is None:
        found, result, proven = _core.calibrate_steps(
            sampling_rate, noise_multiplier, target_epsilon, delta, group_size)
        steps = found
    else:
        found, result, proven = _core.calibrate_rate(
            noise_multiplier, _count("steps", steps, least=1), target_epsilon, delta, group_size)
        sampling_rate = found
    return Calibration(noise_multiplier, sampling_rate, steps, Interval(*result[:2]), delta,
                       "add_remove", proven)


def _count(name: str, value: int, *, least: int) -> int:
    if isinstance(value, bool) or int(value) != value or not least <= value < 2**63:
        _refuse(name, f"{name} is {value!r}; give a whole number of at least {least}")
    return int(value)


def _refuse(op: str, sentence: str) -> None:
    error = Error(f"INVALID_DP_CONFIG: {op}: {sentence}")
    error.code, error.op, error.sentence = "INVALID_DP_CONFIG", op, sentence
    raise error
