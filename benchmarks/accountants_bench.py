"""Rényi accounting against Opacus; balls-and-bins and individual filters against their limits."""

import warnings

import numpy as np
from accounting_bench import best_of

from discreet import compat
from discreet.amplification import allocation_epsilon
from discreet.filters import IndividualFilters

# Opacus histories and a delta.
HISTORIES = [
    ([(1.0, 0.01, 1_000)], 1e-5),
    ([(1.1, 256 / 60_000, 14_040)], 1e-5),
    ([(0.6, 0.001, 100_000)], 1e-6),
    ([(1 + k / 20, 0.01, 100) for k in range(20)], 1e-5),
]


def rdp_row(history, delta):
    """The same object, the same history, the same question; ours is certified and not above."""
    from opacus.accountants import RDPAccountant

    def epsilon(kind):
        accountant = kind()
        accountant.history = list(history)
        return accountant.get_epsilon(delta)

    our_seconds, ours = best_of(50, lambda: epsilon(compat.RDPAccountant))
    their_seconds, theirs = best_of(3, lambda: epsilon(RDPAccountant))
    truth = compat.from_opacus_history(history).epsilon(delta).epsilon
    assert truth.lower <= ours <= theirs, (truth, ours, theirs)
    sigma, rate, steps = history[0]
    distinct = f", {len(history)} distinct σ" if len(history) > 1 else ""
    return {"work": f"RDP ε of q={rate:.3g} σ={sigma} T={steps}{distinct}, δ={delta:g}: "
                    f"{ours:.5f} (peer {theirs:.5f})",
            "peer": "opacus RDP", "ours": our_seconds, "theirs": their_seconds, "at_least": 50}


def balls_and_bins_row(width, limit, sigma=1.0):
    """Upper and lower bound, both directions, in the setting for which the limits were set."""
    seconds, epsilon = best_of(
        5, lambda: allocation_epsilon([(sigma, 10_000, 1_000)], delta=1e-6, relative_width=width))
    assert epsilon.upper - epsilon.lower <= width * max(epsilon.upper, 0.1), epsilon
    return {"work": f"balls-and-bins ε of σ={sigma}, 10⁴ batches × 10³ epochs, δ=1e-6, relative "
                    f"width {width:g}: [{epsilon.lower:.5f}, {epsilon.upper:.5f}]",
            "peer": f"limit of {1e3 * limit:g} ms", "ours": seconds, "theirs": limit,
            "at_least": 1}


def individual_filters_row(records=1_000_000):
    spends = np.random.default_rng(1).uniform(0, 0.04, records)
    filters = IndividualFilters(records=records, budget=1.0)
    seconds, active = best_of(50, lambda: filters.update(spends))
    assert np.array_equal(active, 50 * spends <= 1) and np.all(filters.spent <= 1)
    return {"work": "one step of 10⁶ individual filters: who can pay, and what all have spent",
            "peer": "limit of 20 ms", "ours": seconds, "theirs": 0.020, "at_least": 1}


def run():
    warnings.filterwarnings("ignore")
    rows = [rdp_row(history, delta) for history, delta in HISTORIES]
    rows += [balls_and_bins_row(1e-2, 0.100), balls_and_bins_row(1e-3, 0.500)]
    return rows + [individual_filters_row()]
