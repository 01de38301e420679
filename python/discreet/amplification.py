"""Epsilon of samplers other than Poisson. Every result is an interval that holds the exact value.

    >>> from discreet.amplification import allocation_epsilon
    >>> allocation_epsilon([(1.0, 1000, 1)], delta=1e-5).upper < 0.1391
    True

noise_multiplier is the standard deviation of the noise divided by the clip norm everywhere;
relative_width is the accuracy asked for, relative to max(epsilon, 0.1).
"""

from __future__ import annotations

from collections.abc import Sequence

from discreet import _core
from discreet.accounting import Interval, _count, _refuse


def allocation_epsilon(schedule: Sequence[tuple[float, int, int]], *, delta: float,
                       direction: str | None = None, relative_width: float = 1e-3) -> Interval:
    """Balls-and-bins: each epoch puts every record into one of its batches by lot.

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
    The exact worst case is not known: the interval spans from what a real pair of data sets attains
    to what is proven for all.
    """
    return Interval(*_core.fixed_size_replace_one_epsilon(
        sampling_rate, noise_multiplier, _count("steps", steps, least=1), delta, relative_width))


def shuffled_epsilon(*, noise_multiplier: float, batches: int, epochs: int, delta: float,
                     adjacency: str) -> Interval:
    """Shuffled epochs, which do not amplify: from what an attacker attains to no amplification.

    adjacency: "zero_out" or "replace_one"; under add/remove there is no bound.
    """
    if adjacency not in ("zero_out", "replace_one"):
        _refuse("shuffled_epsilon", f"adjacency is {adjacency!r}; shuffled epochs have a bound "
                                    "under zero_out and replace_one only")
    return Interval(*_core.shuffle_epsilon(
        noise_multiplier, _count("batches", batches, least=1), _count("epochs", epochs, least=1),
        delta, adjacency == "replace_one"))


def truncated_poisson_epsilon(*, sampling_rate: float, batch: int, population: int,
                              noise_multiplier: float, steps: int, delta: float,
                              direction: str | None = None,
                              relative_width: float = 1e-3) -> Interval:
    """Poisson sampling cut to at most `batch` records, add/remove adjacency.

    population: the number of records, which must be public.
    direction: "remove", "add", or None for the worse of both.
    """
    counts = (_count("batch", batch, least=1), _count("population", population, least=1))
    return _worse(direction, lambda one: _core.truncated_poisson_epsilon(
        sampling_rate, *counts, noise_multiplier, _count("steps", steps, least=1), delta, one,
        relative_width))


def shuffle_model_epsilon(*, records: int, epsilon0: float, delta: float,
                          delta0: float = 0.0) -> Interval:
    """n people each send an (epsilon0, delta0)-LDP message and only the multiset is seen.

    About records noised before they were shuffled; replace-one adjacency. Decide by upper.
    """
    return Interval(*_core.shuffle_model_epsilon(_count("records", records, least=1), epsilon0,
                                                 delta0, delta))


def _schedule(schedule):
    return [(sigma, _count("batches", batches, least=1), _count("epochs", epochs, least=1))
            for sigma, batches, epochs in schedule]


def _worse(direction, evaluate) -> Interval:
    if direction is not None:
        return Interval(*evaluate(direction))
    remove, add = evaluate("remove"), evaluate("add")
    return Interval(max(remove[0], add[0]), max(remove[1], add[1]))
