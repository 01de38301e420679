"""The specification's sketches run nearly verbatim, over the core."""

import math
import warnings

import numpy as np
import pytest

import discreet
from discreet.unlearning import Calibrator, CapacityError, MemoryPair, Phase, PrivacyOdometer, epsilon_lower_bound

D = 4
TRUE = np.array([1.0, -2.0, 0.5, 0.0])


def stream(seed=0):
    rng = np.random.default_rng(seed)
    while True:
        x = rng.normal(size=D) / math.sqrt(D)
        yield x, float(TRUE @ x + 0.1 * rng.normal())


def warmed_up(odometer, gamma_learn=0.5, calibrator=None):
    """The workflow of section 7, up to INTERLEAVING."""
    model = MemoryPair(dim=D, odometer=odometer, calibrator=calibrator, insecure_seed=1)
    data = stream()
    for _ in range(500):
        model.calibrate_step(*next(data))
    model.finalize_calibration(gamma_learn)
    while not model.ready_to_predict:
        model.insert(*next(data))
    return model, data


def test_phases_have_the_specified_values():
    assert [(p.name, p.value) for p in Phase] == [("CALIBRATION", 1), ("LEARNING", 2), ("INTERLEAVING", 3)]


def test_calibrator_sketch_gives_the_numbers_of_numpy():
    calibrator = Calibrator(quantile=0.9, D_cap=10.0)
    rng = np.random.default_rng(3)
    norms, thetas = [], []
    for _ in range(200):
        grad, theta = rng.normal(size=D), rng.normal(size=D)
        calibrator.observe(grad, theta)
        norms.append(np.linalg.norm(grad))
        thetas.append(theta)

    class Model:
        def lbfgs_bounds(self):
            return 0.5, 2.0

    stats = calibrator.finalize(0.1, Model())
    G_hat = float(np.quantile(norms, 0.9))
    D_hat = float(max(np.linalg.norm(th - thetas[0]) for th in thetas))
    assert stats["G"] == pytest.approx(G_hat, rel=1e-14)
    assert stats["D"] == pytest.approx(D_hat, rel=1e-14)
    assert (stats["c"], stats["C"]) == (calibrator.c_hat, calibrator.C_hat) == (0.5, 2.0)
    assert stats["N_star"] == int(np.ceil((G_hat * D_hat * np.sqrt(1.0) / 0.1) ** 2))
    np.testing.assert_allclose(calibrator.grad_norms, norms)
    np.testing.assert_array_equal(calibrator.thetas, thetas)
    with pytest.warns(UserWarning, match=r"\(1, 1\)"):
        assert calibrator.finalize(0.1, object())["c"] == 1.0


def test_odometer_sketch_gives_the_specified_numbers():
    odometer = PrivacyOdometer(1.0, 1e-5, 0.1, delta_B=0.05, T=100000, gamma=0.05)
    assert not odometer.ready_to_delete
    stats = {"G": 1.0, "D": 1.0, "c": 1.0, "C": 1.0}
    odometer.finalize_with(stats, T_estimate=100000)

    def regret_bound(m):
        R_ins = 1.0 * np.sqrt(100000)
        R_del = (m / 0.1) * np.sqrt((2 * np.log(1.25 * max(m, 1) / 1e-5) / 1.0) * (2 * np.log(1 / 0.05)))
        return (R_ins + R_del) / 100000

    m = odometer.deletion_capacity
    assert regret_bound(m) <= 0.05 < regret_bound(m + 1)
    assert (odometer.eps_step, odometer.delta_step) == (1.0 / m, 1e-5 / m)
    sigma = (1.0 / 0.1) * np.sqrt(2 * np.log(1.25 / odometer.delta_step)) / odometer.eps_step
    assert odometer.sigma_step == pytest.approx(sigma, rel=1e-14)
    assert odometer.noise_scale() == odometer.sigma_step
    assert odometer.guarantee == "not certified"
    for _ in range(m):
        odometer.spend()
    with pytest.raises(RuntimeError, match="Odometer not finalized or capacity depleted."):
        odometer.spend()


def test_a_single_gamma_sets_both():
    odometer = PrivacyOdometer(1.0, 1e-5, 0.1, gamma=0.3)
    assert (odometer.gamma_learn, odometer.gamma_priv) == (0.3, 0.3)
    odometer = PrivacyOdometer(1.0, 1e-5, 0.1, gamma_learn=0.1, gamma_priv=2.0)
    assert (odometer.gamma_learn, odometer.gamma_priv) == (0.1, 2.0)


def test_capacity_one_warns_as_specified():
    odometer = PrivacyOdometer(1.0, 1e-5, 0.1, gamma=0.005)
    with pytest.warns(UserWarning) as caught:
        odometer.finalize_with({"G": 1.0, "D": 1.0, "c": 1.0, "C": 1.0}, T_estimate=100000)
    assert "Capacity is 1; next delete forces retrain" in [str(w.message) for w in caught]
    assert odometer._status == "degenerate"


def test_workflow_of_the_specification_runs_to_the_end():
    odometer = PrivacyOdometer(eps_total=1.0, delta_total=1e-5, lambda_=0.1, gamma_learn=0.5, gamma_priv=5.0)
    calibrator = Calibrator(quantile=0.95, D_cap=10.0)
    model = MemoryPair(dim=D, odometer=odometer, calibrator=calibrator, insecure_seed=1)
    assert model.phase is Phase.CALIBRATION and model.N_star is None and not model.can_predict
    np.testing.assert_array_equal(model.theta, np.zeros(D))
    seen = []
    model.on_phase(lambda old, new: seen.append((old, new)))
    data = stream()
    for _ in range(500):
        model.calibrate_step(*next(data))
    with pytest.raises(discreet.Error, match="call insert until ready_to_predict"):
        odometer.finalize_with(model.stats, T_estimate=10000)
    stats = model.finalize_calibration(0.1)
    assert model.N_star == stats["N_star"] and model.phase is Phase.LEARNING
    while not model.ready_to_predict:
        assert model.predict(TRUE)[1] is False
        model.insert(*next(data))
    assert model.phase is Phase.INTERLEAVING and model.can_predict and model.inserts_seen == model.N_star
    odometer.finalize_with(stats, T_estimate=10000)
    deleted = 0
    while odometer.ready_to_delete and deleted < 50:
        for _ in range(10):
            x, y = next(data)
            model.insert(x, y)
        model.delete(x, y)
        deleted += 1
    assert model.deletes_seen == deleted >= 1
    log = model.metrics()
    assert log["phase"] == "INTERLEAVING" and log["m_theory"] == odometer.m
    assert log["avg_regret_empirical"] == model.avg_regret_empirical
    assert seen == [(Phase.CALIBRATION, Phase.LEARNING), (Phase.LEARNING, Phase.INTERLEAVING)]


def test_certified_accounting_runs_the_same_workflow():
    odometer = PrivacyOdometer(1.0, 1e-5, 0.1, gamma=5.0, accounting="gdp", guarantee="set-level",
                               loss="squared", dimension=D, G_f=2.0, D=4.0, R=2.0, Y=4.0)
    model, data = warmed_up(odometer)
    odometer.finalize_with(model.stats, T_estimate=100000, deletes_from=model.inserts_seen)
    x, y = next(data)
    model.insert(x, y)
    model.delete(x, y)
    assert odometer.guarantee == "set-level" and 0 < odometer.eps_spent <= 1.0
    with pytest.raises(discreet.Error, match="never inserted"):
        model.delete(x, y)


def test_delete_before_finalisation_is_a_runtime_error_and_spends_nothing():
    odometer = PrivacyOdometer(1.0, 1e-5, 0.1, gamma=5.0)
    model, data = warmed_up(odometer)
    x, y = next(data)
    model.insert(x, y)
    with pytest.raises(CapacityError, match="Odometer not finalized or capacity depleted."):
        model.delete(x, y)
    assert issubclass(CapacityError, RuntimeError) and model.deletes_seen == 0


@pytest.mark.parametrize("call", [
    lambda: PrivacyOdometer(0.0, 1e-5, 0.1), lambda: PrivacyOdometer(1.0, 2.0, 0.1),
    lambda: PrivacyOdometer(1.0, 1e-5, math.nan), lambda: Calibrator(quantile=0.0),
    lambda: PrivacyOdometer(1.0, 1e-5, 0.1, accounting="pld"), lambda: Calibrator(D_cap=-1.0),
    lambda: MemoryPair(0, PrivacyOdometer(1.0, 1e-5, 0.1)),
    lambda: MemoryPair(2, PrivacyOdometer(1.0, 1e-5, 0.1)).calibrate_step([1.0], 0.0),
    lambda: MemoryPair(1, PrivacyOdometer(1.0, 1e-5, 0.1)).calibrate_step([math.nan], 0.0),
])
def test_bad_input_is_an_error(call):
    with pytest.raises(discreet.Error):
        call()


def test_attack_bound_has_its_reference_value():
    bound = epsilon_lower_bound(hits_deleted=700, hits_never=300, runs=1000, delta=1e-5)
    assert bound == pytest.approx(0.69155, abs=1e-5)


def test_few_points_fall_back_with_a_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert Calibrator().finalize(0.1)["N_star"] == 100
    assert any("calibration points" in str(w.message) for w in caught)
