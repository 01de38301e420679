"""Certified epsilon against dp-accounting, prv-accountant and Opacus.

Every row compares the same question in the same process. Ours is certified; a row also asserts that
our interval is as narrow as promised and, within that width, not above the peer's upper value.
"""

import pathlib
import statistics
import subprocess
import time
import warnings

import dp_accounting
from dp_accounting.pld import PLDAccountant
from opacus.accountants import PRVAccountant
from opacus.accountants.utils import get_noise_multiplier

import discreet

# sampling rate, noise multiplier, steps, delta
SETTINGS = [
    (0.01, 1.0, 1_000, 1e-5),
    (0.01, 0.8, 10_000, 1e-5),
    (256 / 60_000, 1.1, 14_040, 1e-5),
    (0.001, 0.6, 100_000, 1e-6),
    (0.05, 2.0, 5_000, 1e-6),
]
# Few steps or rare participation: the contour declines and the transform serves.
TRANSFORM_SETTINGS = [(0.1, 1.0, 2, 1e-5), (0.001, 0.6, 100, 1e-6), (0.01, 0.5, 20, 1e-5),
                      (1e-4, 0.5, 1_000, 1e-7)]
COMMAND = pathlib.Path(__file__).resolve().parent.parent / "build/discreet"


def best_of(repeats, work):
    """The least time of several runs, and the result of the last."""
    least = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        result = work()
        least = min(least, time.perf_counter() - begin)
    return least, result


def ours(rate, sigma, steps, delta):
    return discreet.account(sampling_rate=rate, noise_multiplier=sigma, steps=steps, delta=delta)


def dp_accounting_epsilon(rate, sigma, steps, delta):
    accountant = PLDAccountant()
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, steps))
    return accountant.get_epsilon(delta)


def prv_epsilon(rate, sigma, steps, delta):
    accountant = PRVAccountant()
    accountant.history = [(sigma, rate, steps)]
    return accountant.get_epsilon(delta)


def epsilon_row(setting, peer_name, peer, width, at_least):
    our_seconds, spent = best_of(50, lambda: ours(*setting))
    their_seconds, theirs = best_of(1, lambda: peer(*setting))
    assert spent.epsilon.upper - spent.epsilon.lower <= width, spent
    assert spent.epsilon.lower <= theirs and spent.epsilon.upper <= theirs + width, (spent, theirs)
    rate, sigma, steps, delta = setting
    return {"work": f"ε of q={rate:.3g} σ={sigma} T={steps} δ={delta:g}, width ≤ {width:g}, "
                    f"by {spent.path}: {spent.epsilon.upper:.7f} (peer {theirs:.7f})",
            "peer": peer_name, "ours": our_seconds, "theirs": their_seconds, "at_least": at_least}


def calibration_row():
    question = dict(sampling_rate=256 / 60_000, steps=14_040)
    our_seconds, found = best_of(
        20, lambda: discreet.calibrate(target_epsilon=3, delta=1e-5, **question))
    their_seconds, theirs = best_of(1, lambda: get_noise_multiplier(
        target_epsilon=3, target_delta=1e-5, sample_rate=256 / 60_000, steps=14_040,
        accountant="prv"))
    assert found.proven and found.noise_multiplier <= theirs
    return {"work": f"σ for ε=3, q=256/60000, T=14040: {found.noise_multiplier:.6f} "
                    f"(peer {theirs:.6f})",
            "peer": "opacus get_noise_multiplier(prv)", "ours": our_seconds,
            "theirs": their_seconds, "at_least": 2_000}


def distinct_step_rows(history=1_000, more=500):
    """A step with a noise multiplier not seen before, and epsilon after it.

    The median is a step as such; now and then the contour moves and every distinct step is evaluated
    again, which the mean includes.

    The peer's history is one event repeated, which costs it nothing more later; ours is all distinct.
    """
    def sigma(k):
        return 1.0 + 0.5 * k / history

    accountant = discreet.PldAccountant()
    for k in range(history):
        accountant.add(sampling_rate=0.01, noise_multiplier=sigma(k))
    accountant.epsilon(1e-5)
    times = []
    for k in range(history, history + more):
        begin = time.perf_counter()
        accountant.add(sampling_rate=0.01, noise_multiplier=sigma(k))
        accountant.epsilon(1e-5)
        times.append(time.perf_counter() - begin)

    def event(k):
        return dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(sigma(k)))

    peer = PLDAccountant()
    peer.compose(dp_accounting.SelfComposedDpEvent(event(history // 2), history))
    peer.get_epsilon(1e-5)
    begin = time.perf_counter()
    for k in range(3):
        peer.compose(event(history + k))
        peer.get_epsilon(1e-5)
    their_seconds = (time.perf_counter() - begin) / 3
    work = f"one more distinct step after {history}, and its ε"
    return [{"work": f"{work}, {kind} of {more}", "peer": "dp-accounting PLD", "ours": seconds,
             "theirs": their_seconds, "at_least": at_least}
            for kind, seconds, at_least in (("median", statistics.median(times), 1_000),
                                            ("mean", statistics.mean(times), 1_000))]


def command_row():
    arguments = [COMMAND, "account", "--sampling-rate", "0.01", "--noise-multiplier", "1",
                 "--steps", "1000", "--delta", "1e-5"]
    seconds, _ = best_of(20, lambda: subprocess.run(arguments, check=True, capture_output=True))
    return {"work": "discreet account, process start to answer", "peer": "limit of 50 ms",
            "ours": seconds, "theirs": 0.050, "at_least": 1}


def run():
    warnings.filterwarnings("ignore")
    for peer in (dp_accounting_epsilon, prv_epsilon):  # what they load late is not their answer
        peer(0.01, 2.0, 10, 1e-5)
    rows = [epsilon_row(setting, "dp-accounting PLD", dp_accounting_epsilon, 1e-6, 1_000)
            for setting in SETTINGS]
    rows += [epsilon_row(setting, "opacus PRV", prv_epsilon, 1e-6, 100)
             for setting in SETTINGS[:3]]
    rows += [epsilon_row(setting, "dp-accounting PLD", dp_accounting_epsilon, 2e-3, 50)
             for setting in TRANSFORM_SETTINGS]
    return rows + [calibration_row(), *distinct_step_rows(), command_row()]
