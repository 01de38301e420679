"""Online learning from which records can be deleted again, with a budget for deletions.

    >>> from discreet.unlearning import Calibrator, MemoryPair, Phase, PrivacyOdometer
    >>> odometer = PrivacyOdometer(eps_total=1.0, delta_total=1e-5, lambda_=0.1, gamma=5.0)
    >>> model = MemoryPair(dim=2, odometer=odometer, calibrator=Calibrator(quantile=0.95, D_cap=10.0))
    >>> model.phase
    <Phase.CALIBRATION: 1>

The accounting "specification" computes the specification's own numbers, which certify nothing
(`odometer.guarantee` says so). "zcdp", "rdp" and "gdp" enforce their constants and are certified; see
docs/concepts/unlearning.md for what each guarantee means.
"""

import warnings
import weakref
from enum import Enum

from discreet import _core
from discreet._core import epsilon_lower_bound
from discreet.errors import Error

__all__ = ["Calibrator", "CapacityError", "MemoryPair", "Phase", "PrivacyOdometer", "epsilon_lower_bound"]


class Phase(Enum):
    CALIBRATION = 1
    LEARNING = 2
    INTERLEAVING = 3


class CapacityError(Error, RuntimeError):
    """The odometer is not finalized, or its capacity is used up: retrain without the record."""


def _stats_dict(stats):
    for message in stats.warnings:
        warnings.warn(message, stacklevel=3)
    return {name: getattr(stats, name) for name in ("G", "D", "c", "C", "N_star")}


def _stats(stats):
    return _core.CalibrationStats(**{name: stats[name] for name in ("G", "D", "c", "C", "N_star")
                                     if name in stats})


class Calibrator(_core.Calibrator):
    """Estimates G, D, c and C from observed gradients and parameters, and N* from them.

    quantile: of the gradient norms, in (0, 1]. D_cap: upper limit of D, or None.
    """

    c_hat = None
    C_hat = None

    def estimate_bounds(self, model):
        """(c, C) from model.lbfgs_bounds(), or (1, 1)."""
        bounds = getattr(model, "lbfgs_bounds", lambda: None)()
        return (1.0, 1.0) if bounds is None else bounds

    def finalize(self, gamma, model=None):
        """A dictionary with G, D, c, C and N_star; each fallback that was used is a warning."""
        bounds = getattr(model, "lbfgs_bounds", lambda: None)()
        stats = _stats_dict(self.finalize_stats(gamma, bounds))
        self.c_hat, self.C_hat = stats["c"], stats["C"]
        return stats


class PrivacyOdometer(_core.PrivacyOdometer):
    """How many deletions a privacy and a regret budget afford, and the noise that each needs.

    gamma sets gamma_learn and gamma_priv unless these are given. accounting: "specification", "zcdp",
    "rdp" or "gdp". The rest is for the certified ones: guarantee "per-record", "set-level" or
    "transcript"; reserve, the share for noised releases; and the constants that are enforced on every
    record: loss, dimension, G_f, D, R, Y.
    """

    def __init__(self, eps_total, delta_total, lambda_, delta_B=0.05, T=100000, gamma=0.05, *,
                 gamma_learn=None, gamma_priv=None, accounting="specification", guarantee="per-record",
                 reserve=0.0, loss="logistic", dimension=1, G_f=1.0, D=1.0, R=1.0, Y=1.0):
        super().__init__(
            eps_total=eps_total, delta_total=delta_total, lambda_=lambda_, delta_B=delta_B, T=T,
            gamma_learn=gamma if gamma_learn is None else gamma_learn,
            gamma_priv=gamma if gamma_priv is None else gamma_priv, accounting=accounting,
            guarantee=guarantee, reserve=reserve, loss=loss, dimension=dimension, G_f=G_f, D=D, R=R, Y=Y)

    @property
    def _status(self):
        return self.status

    def finalize_with(self, stats, T_estimate, deletes_from=1):
        """Solves for the capacity, once the model that uses this odometer has warmed up."""
        self.finalize_stats(_stats(stats), T_estimate, deletes_from)
        self._take(stats)

    def recalibrate(self, stats, T_estimate, deletes_from=1):
        """Solves anew with what is left of the budget."""
        self.recalibrate_stats(_stats(stats), T_estimate, deletes_from)
        self._take(stats)

    def _take(self, stats):
        self.L, self.D, self.c, self.C = (stats.get(name, 1.0) for name in ("G", "D", "c", "C"))
        for message in self.messages:
            warnings.warn(message, stacklevel=3)

    def spend(self, deletes=1):
        """Counts deletions, all or none; CapacityError when fewer are left."""
        with _capacity_error():
            super().spend(deletes)


class MemoryPair(_core.MemoryPair):
    """An online learner with phases CALIBRATION, LEARNING and INTERLEAVING.

    loss: "squared" or "logistic" (labels -1 and 1). insecure_seed: for tests; noise that protects
    somebody comes from the operating system's generator.
    """

    def __init__(self, dim, odometer, calibrator=None, *, loss="squared", insecure_seed=None):
        super().__init__(dim, odometer, Calibrator() if calibrator is None else calibrator, loss,
                         insecure_seed)
        self.odometer = odometer

    @property
    def phase(self):
        return Phase(self.phase_number)

    @property
    def stats(self):
        """What the last calibration found, as finalize_with takes it."""
        found = self.calibration_stats
        return {name: getattr(found, name) for name in ("G", "D", "c", "C", "N_star")}

    def finalize_calibration(self, gamma_or_stats):
        """Ends CALIBRATION: with gamma_learn, or with statistics of Calibrator.finalize."""
        if isinstance(gamma_or_stats, dict):
            return _stats_dict(self.finalize_stats(_stats(gamma_or_stats)))
        return _stats_dict(self.finalize_gamma(gamma_or_stats))

    def delete(self, x, y):
        """Deletes one live copy of the record; CapacityError when the odometer is not ready."""
        with _capacity_error():
            self.erase(x, y)

    def on_phase(self, hook):
        """hook(from_phase, to_phase) is called after each change of phase."""
        # The core holds no reference to the hook: it could not be collected together with the model.
        self._hook = hook
        model = weakref.ref(self)
        self.on_phase_number(lambda old, new: model()._hook(Phase(old), Phase(new)))


class _capacity_error:
    """Turns the core's PRIVACY_BUDGET_EXCEEDED into CapacityError."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, Error) and error.code == "PRIVACY_BUDGET_EXCEEDED":
            raised = CapacityError(error.sentence)
            raised.code, raised.op, raised.sentence = error.code, error.op, error.sentence
            raise raised from error
        return False
