"""Budgets that remain valid if the noise of each step is chosen after seeing earlier releases.

    >>> from discreet.filters import ZcdpFilter
    >>> budget = ZcdpFilter.for_target(epsilon=3.0, delta=1e-5)
    >>> budget.spend(1 / (2 * 10.0**2))  # before a full-batch step of noise multiplier 10
    >>> budget.admits(1.0)
    False
"""

from discreet._core import IndividualFilters, RdpFilter, ZcdpFilter, ZcdpOdometer

__all__ = ["IndividualFilters", "RdpFilter", "ZcdpFilter", "ZcdpOdometer"]
