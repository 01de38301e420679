"""Three learners calibrate together and delete together: each keeps its own data, they share four
numbers. Constants agreed on by looking at data are estimates; nothing here is certified."""

import warnings

import discreet
from discreet.unlearning import MemoryPair, Phase, PrivacyOdometer

warnings.simplefilter("ignore")


def record(learner, n):
    """The n-th record of a learner: a fixed sequence, so that every language sees the same."""
    a, b = (n * 7 + learner * 3) % 11 / 11 - 0.5, (n * 5 + learner) % 13 / 13 - 0.5
    return [a, b], 2 * a - b


odometers = [PrivacyOdometer(1.0, 1e-5, 0.1, gamma_learn=0.25, gamma_priv=1.0) for _ in range(3)]
learners = [MemoryPair(2, odometer) for odometer in odometers]
records = [iter([record(i, n) for n in range(100000)]) for i in range(3)]
for learner, own in zip(learners, records):
    for _ in range(50):
        learner.calibrate_step(*next(own))

# The worst of all, so that one N* and one capacity hold for everybody.
found = []
for learner in learners:
    stats = learner.calibrator.finalize_stats(0.25, learner.lbfgs_bounds())
    found.append(stats)
joint = {"G": max(s.G for s in found), "D": max(s.D for s in found), "c": min(s.c for s in found),
         "C": max(s.C for s in found)}
joint["N_star"] = max(60, int((joint["G"] * joint["D"] * (joint["c"] * joint["C"]) ** 0.5 / 0.25) ** 2) + 1)

interleaving = []
for learner in learners:
    learner.on_phase(lambda old, new: interleaving.append(new) if new is Phase.INTERLEAVING else None)
    learner.finalize_calibration(joint)
for learner, own in zip(learners, records):
    while not learner.ready_to_predict:
        learner.insert(*next(own))
print(len(interleaving), "learners are interleaving after the same N*")

# Somebody whose record every learner has asks to be deleted.
x = [0.25, -0.25]
for learner, odometer in zip(learners, odometers):
    odometer.finalize_with(joint, T_estimate=100000)
    learner.insert(x, 1.0)
    learner.delete(x, 1.0)
print("same capacity:", "yes" if odometers[0].m == odometers[2].m else "no")
print("deletes:", *(learner.deletes_seen for learner in learners))
print("guarantee:", odometers[0].guarantee)
try:
    learners[0].delete(x, 1.0)
except discreet.Error as error:
    print("again:", error.sentence)
