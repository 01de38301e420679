"""Clauses of the specification of Calibrator, MemoryPair and PrivacyOdometer, through the Python package alone."""

import math
import warnings

import numpy as np
import pytest

import discreet
from discreet.unlearning import Calibrator, CapacityError, MemoryPair, Phase, PrivacyOdometer

D = 3
TRUE = np.array([1.0, -0.5, 0.25])


def stream(seed=0):
    rng = np.random.default_rng(seed)
    while True:
        x = rng.normal(size=D) / math.sqrt(D)
        yield x, float(TRUE @ x + 0.1 * rng.normal())


def literal(**others):
    return PrivacyOdometer(**{**dict(eps_total=1.0, delta_total=1e-5, lambda_=0.1, gamma_learn=0.5, gamma_priv=5.0), **others})


def regret(m, stats, T, eps, delta, lam, delta_B):
    """The specification's bound of the average regret of T events, m of them deletes."""
    R_ins = stats["G"] * stats["D"] * math.sqrt(stats["c"] * stats["C"] * T)
    R_del = (m * stats["G"] / lam) * math.sqrt((2 * math.log(1.25 * max(m, 1) / delta) / eps) * (2 * math.log(1 / delta_B)))
    return (R_ins + R_del) / T


def test_phases_follow_the_order_of_the_specification():
    odometer = literal()
    model, data = MemoryPair(dim=D, odometer=odometer, insecure_seed=1), stream()
    assert model.phase is Phase.CALIBRATION and not model.can_predict
    x, y = next(data)
    for call in (lambda: model.insert(x, y), lambda: model.delete(x, y)):
        with pytest.raises(discreet.Error):
            call()
    for _ in range(200):
        model.calibrate_step(*next(data))
    assert (model.events_seen, model.inserts_seen, model.deletes_seen) == (200, 200, 0) and model.avg_regret_empirical == 0
    with pytest.raises(discreet.Error, match="ready_to_predict"):
        odometer.finalize_with(model.stats, T_estimate=10000)
    stats = model.finalize_calibration({**model.observed_stats(0.5), "N_star": 230})
    assert model.phase is Phase.LEARNING and model.N_star == stats["N_star"] == 230
    with pytest.raises(discreet.Error, match="call insert until ready_to_predict"):
        model.delete(x, y)
    while model.inserts_seen < 229:
        model.insert(*next(data))
        assert model.phase is Phase.LEARNING and not model.ready_to_predict and model.predict(x)[1] is False
    model.insert(*next(data))
    assert model.phase is Phase.INTERLEAVING and model.ready_to_predict and model.can_predict and model.predict(x)[1] is True
    model.insert(x, y)
    with pytest.raises(CapacityError):
        model.delete(x, y)  # the odometer is not finalized
    odometer.finalize_with(stats, T_estimate=10000)
    model.delete(x, y)
    assert (model.inserts_seen, model.deletes_seen, model.events_seen) == (231, 1, 232)


def test_a_calibration_step_is_the_specified_update_and_leaves_regret_alone():
    model = MemoryPair(dim=D, odometer=literal(), insecure_seed=1)
    x, y = np.array([0.5, -0.25, 0.125]), 2.0
    assert model.calibrate_step(x, y) == 0.0  # theta is zero before the first step
    gradient = (0.0 - y) * x
    np.testing.assert_allclose(model.theta, -gradient)  # step 1 / (sqrt(1) max(1, |x|²)) along the plain gradient
    assert model.calibrator.grad_norms == [pytest.approx(np.linalg.norm(gradient))]
    np.testing.assert_array_equal(model.calibrator.thetas[0], model.theta)
    theta = model.theta.copy()
    assert model.calibrate_step(x * 2, y) == pytest.approx(theta @ (2 * x))
    assert model.events_seen == model.inserts_seen == 2 and model.avg_regret_empirical == 0


def test_an_insert_predicts_then_learns_and_counts_its_regret():
    model, data = MemoryPair(dim=D, odometer=literal(), insecure_seed=1), stream()
    model.set_comparator(TRUE)
    for _ in range(300):
        model.calibrate_step(*next(data))
    bounds = model.lbfgs_bounds()
    stats = model.finalize_calibration(0.5)
    assert (stats["c"], stats["C"]) == bounds and 0 < bounds[0] <= bounds[1]
    regret = 0.0
    for inserts in range(1, 101):
        (x, y), theta = next(data), model.theta.copy()
        assert model.insert(x, y) == pytest.approx(theta @ x)
        assert (model.inserts_seen, model.events_seen, model.deletes_seen) == (300 + inserts, 300 + inserts, 0)
        assert (model.theta != theta).all()
        regret += ((theta @ x - y) ** 2 - (TRUE @ x - y) ** 2) / 2
        assert model.avg_regret_empirical == pytest.approx(regret / (300 + inserts), rel=1e-9, abs=1e-15)
    assert model.metrics()["avg_regret_empirical"] == model.avg_regret_empirical > 0


def test_a_delete_adds_noise_of_the_deviation_that_the_odometer_states():
    dim, odometer = 20000, literal()
    model, rng = MemoryPair(dim=dim, odometer=odometer, insecure_seed=1), np.random.default_rng(0)
    records = [(np.r_[rng.normal(), np.zeros(dim - 1)], rng.normal()) for _ in range(60)]
    for record in records[:40]:
        model.calibrate_step(*record)
    model.finalize_calibration({**model.observed_stats(0.5), "N_star": 50})
    for record in records[40:]:
        model.insert(*record)
    odometer.finalize_with(model.stats, T_estimate=10000)
    assert not model.theta[1:].any()
    spent = odometer.eps_spent
    model.delete(*records[50])
    noise = model.theta[1:]  # of which the record touched nothing
    # The relative deviation of the estimate is 1/200; 6 of them.
    assert noise.std() == pytest.approx(odometer.noise_scale(), rel=0.03) and abs(noise.mean()) < 6 * noise.std() / dim**0.5
    assert odometer.eps_spent == pytest.approx(spent + odometer.eps_step)


def test_gammas_are_decoupled():
    capacities, horizons = {}, {}
    for learn, priv in ((0.02, 5.0), (0.01, 5.0), (0.02, 2.5)):
        odometer = literal(gamma_learn=learn, gamma_priv=priv)
        model, data = MemoryPair(dim=D, odometer=odometer, insecure_seed=1), stream()
        for _ in range(300):
            model.calibrate_step(*next(data))
        horizons[learn, priv] = model.finalize_calibration(learn)["N_star"]
        while not model.ready_to_predict:
            model.insert(*next(data))
        odometer.finalize_with(model.stats, T_estimate=10000)
        capacities[learn, priv] = odometer.m
    assert horizons[0.01, 5.0] > horizons[0.02, 5.0] == horizons[0.02, 2.5]
    assert capacities[0.02, 2.5] < capacities[0.02, 5.0] == capacities[0.01, 5.0]


def test_capacity_and_noise_are_the_specified_numbers():
    stats = {"G": 1.5, "D": 2.0, "c": 0.5, "C": 3.0}
    odometer = PrivacyOdometer(2.0, 1e-6, 0.2, delta_B=0.1, T=50000, gamma=0.4)
    assert not odometer.ready_to_delete
    odometer.finalize_with(stats, T_estimate=60000)
    m = odometer.m
    bound = lambda m: regret(m, stats, 60000, 2.0, 1e-6, 0.2, 0.1)
    assert m > 1 and bound(m) <= 0.4 < bound(m + 1)
    assert odometer.ready_to_delete and odometer.deletion_capacity == max(1, m)
    assert odometer.eps_step == 2.0 / m and odometer.delta_step == 1e-6 / m
    assert odometer.noise_scale() == pytest.approx(1.5 / 0.2 * math.sqrt(2 * math.log(1.25 * m / 1e-6)) / (2.0 / m), rel=1e-12)


def test_an_infeasible_budget_degrades_to_one_delete_with_a_warning_and_stops():
    stats = {"G": 1.0, "D": 1.0, "c": 1.0, "C": 1.0}
    odometer = PrivacyOdometer(1.0, 1e-5, 0.1, gamma=1e-4)
    assert regret(1, stats, 1000, 1.0, 1e-5, 0.1, 0.05) > 1e-4
    with pytest.warns(UserWarning) as caught:
        odometer.finalize_with(stats, T_estimate=1000)
    assert any("regret budget gamma_priv" in str(warning.message) for warning in caught)
    assert odometer.m == 0 and odometer.deletion_capacity == 1 and odometer.status == "degenerate"
    odometer.spend()
    assert not odometer.ready_to_delete and odometer.capacity_remaining == 0
    with pytest.raises(CapacityError, match="capacity depleted"):
        odometer.spend()


@pytest.mark.parametrize("accounting", ["specification", "zcdp", "rdp", "gdp"])
def test_every_accounting_blocks_one_more_delete_than_its_capacity(accounting):
    odometer = literal(accounting=accounting, guarantee="set-level", dimension=D, eps_total=8.0, gamma_priv=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        odometer.finalize_with({"G": 1.0, "D": 1.0, "c": 1.0, "C": 1.0}, T_estimate=20000, deletes_from=5000)
    assert odometer.deletion_capacity >= 1
    odometer.spend(odometer.deletion_capacity)
    assert odometer.eps_spent <= 8.0 * (1 + 1e-12)
    with pytest.raises(CapacityError):
        odometer.spend()


def test_the_calibrator_estimates_from_quantile_and_distance_with_its_fallbacks():
    assert Calibrator().quantile == 0.95 and Calibrator().D_cap is None
    rng = np.random.default_rng(5)
    grads, thetas = rng.normal(size=(300, D)), np.cumsum(rng.normal(size=(300, D)), axis=0)
    grads[7] *= 1e6  # one extreme gradient
    calibrator, capped = Calibrator(), Calibrator(D_cap=2.0)
    theta = thetas[0].copy()
    for each in (calibrator, capped):
        for grad, at in zip(grads, thetas):
            each.observe(grad, at)
    theta[:] = 0  # what was observed is a copy
    np.testing.assert_array_equal(calibrator.thetas[0], thetas[0])
    with pytest.warns(UserWarning, match=r"\(1, 1\)"):
        stats = calibrator.finalize(0.1)
    assert stats["G"] == pytest.approx(np.quantile(np.linalg.norm(grads, axis=1), 0.95), rel=1e-12) and stats["G"] < 10
    assert stats["D"] == pytest.approx(np.linalg.norm(thetas - thetas[0], axis=1).max(), rel=1e-12)
    assert (stats["c"], stats["C"]) == (1.0, 1.0)
    assert stats["N_star"] == math.ceil((stats["G"] * stats["D"] / 0.1) ** 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = [calibrator.finalize(gamma)["N_star"] for gamma in (0.01, 0.1, 1.0, 1e6)]
        assert counts == sorted(counts, reverse=True) and counts[-1] == 1
        assert capped.finalize(0.1)["D"] == 2.0
    with pytest.warns(UserWarning, match="calibration points"):
        assert Calibrator().finalize(0.1)["N_star"] == 100


def test_the_log_has_every_name_with_its_value():
    odometer = literal()
    model = MemoryPair(dim=D, odometer=odometer, calibrator=Calibrator(quantile=0.9, D_cap=10.0), insecure_seed=1)
    data = stream()
    for _ in range(300):
        model.calibrate_step(*next(data))
    stats = model.finalize_calibration(0.4)  # not the odometer's 0.5
    while not model.ready_to_predict:
        model.insert(*next(data))
    odometer.finalize_with(stats, T_estimate=10000)
    for _ in range(50):
        x, y = next(data)
        model.insert(x, y)
    model.delete(x, y)
    log = model.metrics()
    expected = {
        "N_star_theory": model.N_star, "m_theory": odometer.m, "eps_step_theory": 1.0 / odometer.m,
        "delta_step_theory": 1e-5 / odometer.m, "sigma_step_theory": odometer.noise_scale(), "G_hat": stats["G"],
        "D_hat": stats["D"], "c_hat": stats["c"], "C_hat": stats["C"], "avg_regret_empirical": model.avg_regret_empirical,
        "phase": "INTERLEAVING", "capacity_remaining": odometer.deletion_capacity - 1, "gamma_learn": 0.4, "gamma_priv": 5.0,
        "quantile": 0.9, "D_cap": 10.0}
    assert {name: log[name] for name in expected} == expected
    assert log["eps_spent"] == pytest.approx(1.0 / odometer.m)
    assert log["avg_regret_within_bound"] == (log["avg_regret_empirical"] <= log["avg_regret_bound"])


def test_reverting_to_calibration_keeps_what_is_spent():
    odometer = literal()
    model, data = MemoryPair(dim=D, odometer=odometer, insecure_seed=1), stream()
    for _ in range(300):
        model.calibrate_step(*next(data))
    model.finalize_calibration(0.5)
    while not model.ready_to_predict:
        model.insert(*next(data))
    odometer_stats = model.stats
    odometer.finalize_with(odometer_stats, T_estimate=10000)
    x, y = next(data)
    model.insert(x, y)
    model.delete(x, y)
    spent = odometer.eps_spent
    model.revert_to_calibration()
    assert model.phase is Phase.CALIBRATION and model.N_star is None and not model.can_predict
    for _ in range(300):
        model.calibrate_step(*next(data))
    # The noise of a literal delete is large, and so would be what the calibrator observes after it.
    model.finalize_calibration({**odometer_stats, "N_star": model.inserts_seen + 10})
    while not model.ready_to_predict:
        model.insert(*next(data))
    odometer.recalibrate(model.stats, T_estimate=10000)
    assert odometer.eps_spent >= spent > 0 and odometer.deletes == 1
    odometer.spend(odometer.capacity_remaining)
    assert odometer.eps_spent <= 1.0 + 1e-9
