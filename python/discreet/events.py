"""Events: what a mechanism releases, in the vocabulary that all accountants share.

    >>> from discreet import Accountant
    >>> from discreet.events import Event, Gaussian, Poisson
    >>> step = Event(Gaussian(noise_multiplier=1.0), Poisson(rate=0.01), adjacency="add_remove")
    >>> round(Accountant("pld").compose(step, 1000).epsilon(1e-5).epsilon.upper, 6)
    1.828237
"""

from discreet._core import (
    Adaptation,
    BallsAndBins,
    DiscreteGaussian,
    Event,
    FixedSize,
    Gaussian,
    GaussianGroups,
    Group,
    Guarantee,
    Laplace,
    NoSampling,
    Poisson,
    RoundedGaussian,
    ShuffledEpoch,
    Skellam,
    TruncatedPoisson,
)

__all__ = [
    "Adaptation",
    "BallsAndBins",
    "DiscreteGaussian",
    "Event",
    "FixedSize",
    "Gaussian",
    "GaussianGroups",
    "Group",
    "Guarantee",
    "Laplace",
    "NoSampling",
    "Poisson",
    "RoundedGaussian",
    "ShuffledEpoch",
    "Skellam",
    "TruncatedPoisson",
]
