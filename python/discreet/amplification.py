"""Epsilon of samplers other than Poisson. Every result is an interval that contains the exact value.

    >>> from discreet.amplification import allocation_epsilon
    >>> allocation_epsilon([(1.0, 1000, 1)], delta=1e-5).upper < 0.1391
    True

noise_multiplier is always the standard deviation of the noise divided by the clip norm;
relative_width is the requested accuracy, relative to max(epsilon, 0.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from discreet import _core
from discreet.accounting import Interval, _count
from discreet.errors import refuse


def allocation_epsilon(schedule: Sequence[tuple[float, int, int]], *, delta: float,
                       direction: str | None = None, relative_width: float = 1e-3) -> Interval:
    """Balls-and-bins: each epoch assigns every record to one random batch.

    schedule: (noise_multiplier, batches, epochs) triples, in any order.
    direction: "remove", "add", or None for the worse of both: add/remove adjacency.
    """
    return Interval(*_core.allocation_epsilon(_schedule(schedule), delta, direction or "",
                                              relative_width))


def allocation_delta(schedule: Sequence[tuple[float, int, int]], *, epsilon: float,
                     direction: str | None = None, relative_width: float = 1e-3) -> Interval:
    """Delta at an epsilon, as `allocation_epsilon`."""
    return _worse(direction, lambda one: _core.allocation_delta(
        _schedule(schedule), epsilon, one, relative_width))


def fixed_size_epsilon(*, sampling_rate: float, noise_multiplier: float, steps: int,
                       delta: float, relative_width: float = 1e-3) -> Interval:
    """Exactly b of n records in each step, without replacement; replace-one adjacency.

    sampling_rate: b / n, in (0, 1].
    The exact worst case is unknown: the lower end is attained by a pair of data sets, the upper end
    is proven for all.
    """
    return Interval(*_core.fixed_size_replace_one_epsilon(
        sampling_rate, noise_multiplier, _count("steps", steps, least=1), delta, relative_width))


def shuffled_epsilon(*, noise_multiplier: float, batches: int, epochs: int, delta: float,
                     adjacency: str) -> Interval:
    """Shuffled epochs, which do not amplify: from a known attack to the bound without amplification.

    adjacency: "zero_out" or "replace_one"; there is no bound under add/remove.
    """
    if adjacency not in ("zero_out", "replace_one"):
        refuse("shuffled_epsilon", f"adjacency is {adjacency!r}; shuffled epochs have a bound only under "
                                   "'zero_out' and 'replace_one'")
    return Interval(*_core.shuffle_epsilon(
        noise_multiplier, _count("batches", batches, least=1), _count("epochs", epochs, least=1),
        delta, adjacency == "replace_one"))


def truncated_poisson_epsilon(*, sampling_rate: float, batch: int, population: int,
                              noise_multiplier: float, steps: int, delta: float,
                              direction: str | None = None,
                              relative_width: float = 1e-3) -> Interval:
    """Poisson sampling cut to at most `batch` records, add/remove adjacency.

    population: the number of records; it must be public.
    direction: "remove", "add", or None for the worse of both.
    """
    counts = (_count("batch", batch, least=1), _count("population", population, least=1))
    return _worse(direction, lambda one: _core.truncated_poisson_epsilon(
        sampling_rate, *counts, noise_multiplier, _count("steps", steps, least=1), delta, one,
        relative_width))


def shuffle_model_epsilon(*, records: int, epsilon0: float, delta: float,
                          delta0: float = 0.0) -> Interval:
    """Each of n people sends an (epsilon0, delta0)-LDP message, and only the multiset is visible.

    For records that were noised before they were shuffled; replace-one adjacency. Use upper for
    decisions.
    """
    return Interval(*_core.shuffle_model_epsilon(_count("records", records, least=1), epsilon0,
                                                 delta0, delta))


def _schedule(schedule: Sequence[tuple[float, int, int]]) -> list[tuple[float, int, int]]:
    return [(sigma, _count("batches", batches, least=1), _count("epochs", epochs, least=1))
            for sigma, batches, epochs in schedule]


def _worse(direction: str | None, evaluate: Callable[[str], Sequence[float]]) -> Interval:
    if direction is not None:
        return Interval(*evaluate(direction))
    remove, add = evaluate("remove"), evaluate("add")
    return Interval(max(remove[0], add[0]), max(remove[1], add[1]))
