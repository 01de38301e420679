"""Engines, drift, learners that calibrate together, and the durable service, from Python."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

import discreet
from discreet.unlearning import (
    CapacityError,
    DriftDetector,
    ErmEngine,
    ExactEngine,
    MemoryPair,
    Phase,
    PrivacyOdometer,
    Service,
    StreamEngine,
    joint_stats,
)

DISCREET = os.environ.get("DISCREET", "build/discreet")


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.7, 0.7, size=(n, 2))
    return X, np.where(X[:, 0] > X[:, 1], 1.0, -1.0)


# ---------------------------------------------------------------- engines


def test_the_exact_engine_is_ridge_regression_and_forgets_in_every_bit():
    X, y = records(200)
    engine = ExactEngine(2, N=200, n_max=400, lambda_=0.01)
    for i in range(200):
        engine.insert(i, X[i], y[i])
    w = np.linalg.solve(X.T @ X / 200 + 0.01 * np.eye(2), X.T @ y / 200)
    np.testing.assert_allclose(engine.publish().parameters, w, atol=1e-4)
    engine.delete([3, 7])
    engine.delete(11)
    other = ExactEngine(2, N=200, n_max=400, lambda_=0.01)
    for i in reversed(range(200)):
        if i not in (3, 7, 11):
            other.insert(i, X[i], y[i])
    assert engine.state_digest == other.state_digest and engine.live == 197 and 3 not in engine and 4 in engine


def test_the_certified_engine_releases_near_the_minimiser_until_its_releases_are_used_up():
    X, y = records(300)
    engine = ErmEngine(2, N=300, n_max=600, lambda_=0.05, sigma=1e-4, eps_total=0.5, insecure_seed=1)
    for i in range(300):
        engine.insert(i, X[i], y[i])
    engine.delete(range(10))
    release = engine.publish()
    w = np.zeros(2)
    for _ in range(20000):  # plain gradient descent on the same objective
        slope = -y[10:] / (1 + np.exp(y[10:] * (X[10:] @ w)))
        w -= 2.0 * (X[10:].T @ slope / 300 + 0.05 * w)
    np.testing.assert_allclose(release.parameters, w, atol=6e-4)
    assert release.sigma == 1e-4 and "per-record" in release.guarantee
    left = engine.releases_left
    engine.publish()
    assert engine.releases_left == left - 1
    poor = ErmEngine(2, N=300, n_max=600, lambda_=1e-3, tau=1e-3, sigma=1e-3, eps_total=1e-6)
    poor.insert(0, X[0], y[0])
    with pytest.raises(CapacityError) as refused:
        poor.publish()
    assert refused.value.code == "PRIVACY_BUDGET_EXCEEDED"


def test_the_streaming_engine_deletes_within_its_capacity():
    X, y = records(400)
    odometer = PrivacyOdometer(1.0, 1e-5, 0.1, gamma=5.0, accounting="zcdp", dimension=2)
    engine = StreamEngine(odometer, insecure_seed=1)
    for i in range(400):
        engine.insert(i, X[i], y[i])
    before = engine.publish().parameters
    assert np.mean(np.sign(X @ before) == y) > 0.9
    odometer.finalize_with({}, T_estimate=100000, deletes_from=400)
    engine.delete(5)
    assert engine.live == 399 and odometer.deletes == 1
    assert not np.array_equal(engine.publish().parameters, before)
    assert np.all(np.abs(engine.publish().parameters - before) < 40 * odometer.noise_scale(engine.sensitivity))


@pytest.mark.parametrize("call, says", [
    (lambda: ExactEngine(2, sigma=1), "unknown option sigma"),
    (lambda: ExactEngine(2, R="wide"), "R is 'wide'"),
    (lambda: ErmEngine(2, loss="hinge"), "'hinge' is not one of squared, logistic"),
    (lambda: ExactEngine(0), "dimension"),
    (lambda: ExactEngine(2).insert(1, [[1.0, 2.0]], 1), "1 dimension"),
    (lambda: ExactEngine(2).insert(1, [1.0], 1), "this model expects 2"),
    (lambda: ExactEngine(2).insert(1, [np.nan, 1.0], 1), "feature 0 is nan"),
    (lambda: ExactEngine(2).insert(1, ["a", "b"], 1), "must be numbers"),
    (lambda: ExactEngine(2).delete([]), "the batch is empty"),
    (lambda: ExactEngine(2).delete(9), "record 9 is not in the model"),
    (lambda: StreamEngine(PrivacyOdometer(1.0, 1e-5, 0.1)), "not certified"),
    (lambda: joint_stats([], 0.1), "at least one learner"),
])
def test_bad_input_is_an_error_that_says_what_was_expected(call, says):
    with pytest.raises(discreet.Error, match=says):
        call()


# ---------------------------------------------------------------- drift and several learners


def test_drift_is_paid_for_once_and_recalibration_mints_no_budget():
    X, y = records(3000)
    odometer = PrivacyOdometer(1.0, 1e-5, 0.1, gamma=5.0, accounting="zcdp", dimension=2, reserve=0.5)
    engine = StreamEngine(odometer, insecure_seed=1)
    for i in range(1000):
        engine.insert(i, X[i], y[i])
    odometer.finalize_with({}, T_estimate=100000, deletes_from=1000)
    engine.delete(0)
    reserve, spent = odometer.reserve_left, odometer.eps_spent
    detector = DriftDetector(window=200, threshold=0.4, sigma=5.0, odometer=odometer, insecure_seed=2)
    assert 1 / (8 * 25) <= detector.rho < 1 / (8 * 25) + 1e-5
    assert odometer.reserve_left == pytest.approx(reserve - detector.rho, abs=1e-12)
    served, decisions = engine.publish().parameters, []
    for i in range(1000, 3000):
        label = y[i] if i < 2000 else -y[i]  # the world turns round
        loss = float(np.sign(X[i] @ served) != label)
        if (drifted := detector.observe(loss)) is not None:
            decisions.append(drifted)
            if drifted:
                odometer.recalibrate({}, T_estimate=200000, deletes_from=1000)
    assert decisions == [False] * 5 + [True] * 5
    assert odometer.reserve_left == pytest.approx(reserve - detector.rho, abs=1e-12)
    assert odometer.eps_spent >= spent > 0 and odometer.deletes == 1
    assert odometer.eps_spent <= odometer.eps_total
    with pytest.raises(discreet.Error):
        DriftDetector(sigma=1.0)
    with pytest.raises(CapacityError):
        DriftDetector(sigma=1e-3, odometer=odometer)


def test_learners_calibrate_together_through_their_hooks():
    learners, odometers, phases = [], [], []
    X, y = records(4000)
    for k in range(3):
        odometers.append(PrivacyOdometer(1.0, 1e-5, 0.1, gamma_learn=0.5, gamma_priv=5.0))
        learners.append(MemoryPair(dim=2, odometer=odometers[k], insecure_seed=k + 1))
        learners[k].on_phase(lambda old, new, k=k: phases.append((k, new)))
        for i in range(100):
            learners[k].calibrate_step(X[100 * k + i] * (k + 1), y[100 * k + i])
    own = [learner.observed_stats(0.5) for learner in learners]
    assert len({stats["G"] for stats in own}) == 3
    joint = joint_stats(own, 0.5)
    assert joint["G"] == max(stats["G"] for stats in own) and joint["c"] == min(stats["c"] for stats in own)
    assert joint["N_star"] == int(np.ceil((joint["G"] * joint["D"] * np.sqrt(joint["c"] * joint["C"]) / 0.5) ** 2))
    for learner in learners:
        learner.finalize_calibration(joint)
    assert {learner.N_star for learner in learners} == {joint["N_star"]}
    for learner in learners:
        at = 300
        while not learner.ready_to_predict:
            learner.insert(X[at % 4000], y[at % 4000])
            at += 1
    assert [k for k, phase in phases if phase is Phase.INTERLEAVING] == [0, 1, 2]
    for learner, odometer in zip(learners, odometers):
        odometer.finalize_with(joint, T_estimate=10000)
        learner.insert(X[0], y[0])
        learner.delete(X[0], y[0])
    assert len({odometer.m for odometer in odometers}) == 1


# ---------------------------------------------------------------- the service


def command(*arguments):
    return subprocess.run([DISCREET, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture
def churn(tmp_path):
    X, y = records(300)
    with Service.create(tmp_path / "churn", "exact", dimension=2, N=1000, n_max=2000, lambda_=0.01) as service:
        service.insert([f"person-{i}" for i in range(300)], X, y)
        service.publish()
        yield service, X, y


def test_a_service_inserts_once_deletes_with_receipts_and_serves_nobody_deleted(churn, tmp_path):
    service, X, y = churn
    assert service.insert([f"person-{i}" for i in range(300)], X, y) == 0  # the same request again
    before = service.predict(X[:5])
    receipts = service.delete("person-17", request="ticket-4711")
    assert service.delete("person-17", request="ticket-4711") == receipts
    assert [r["opening"]["subject"] for r in receipts] == ["person-17"] and receipts[0]["engine"] == "exact"
    w = np.linalg.solve((X.T @ X - np.outer(X[17], X[17])) / 1000 + 0.01 * np.eye(2), (X.T @ y - X[17] * y[17]) / 1000)
    np.testing.assert_allclose(service.predict(X[:5]), X[:5] @ w, atol=1e-3)
    assert not np.array_equal(service.predict(X[:5]), before)
    assert service.status["live"] == 299 and service.status["deletions"] == 1
    file = tmp_path / "receipts.jsonl"
    file.write_text("".join(json.dumps(receipt) + "\n" for receipt in receipts))
    checked = command("ledger", "check", file, "--public-key", service.folder / "ledger.pub")
    assert checked.returncode == 0 and "VERIFIED" in checked.stdout
    receipts[0]["opening"]["subject"] = "person-18"
    file.write_text(json.dumps(receipts[0]) + "\n")
    assert command("ledger", "check", file, "--public-key", service.folder / "ledger.pub").returncode != 0


def test_the_command_and_python_share_a_folder_one_at_a_time(churn):
    service, X, _ = churn
    folder = service.folder
    locked = command("unlearn", "status", folder)
    assert locked.returncode != 0 and "IO_ERROR" in locked.stderr
    service.close()
    assert json.loads(command("unlearn", "status", folder, "--json").stdout)["live"] == 300
    assert command("unlearn", "delete", folder, "--subject", "person-3").returncode == 0
    with Service(folder) as again:
        assert again.status["live"] == 299
        assert again.confirm() == 0
    with pytest.raises(discreet.Error, match="closed"):
        service.predict(X)
    assert (folder / "ledger.key").stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700


def test_verification_holds_and_a_retrain_opens_a_generation(churn):
    service, X, y = churn
    service.delete(["person-1", "person-2"])
    found = service.verify(forgotten=(X[1:3], y[1:3]), test=records(50, seed=9), runs=300)
    assert found["holds"] and found["same_state"] and found["forgotten"]["measure"] == "accuracy"
    assert found["epsilon_lower_bound"] <= found["epsilon_certified"] < found["control_lower_bound"]
    service.retrain()
    assert service.status["generation"] == 1


@pytest.mark.parametrize("engine, options", [
    ("erm", dict(N=300, n_max=600, lambda_=0.05)),
    ("stream", dict(calibration=100, gamma_learn=0.5, gamma_priv=5.0, lambda_=0.1)),
])
def test_the_noised_engines_serve_after_a_deletion(tmp_path, engine, options):
    X, y = records(600)
    with Service.create(tmp_path / engine, engine, dimension=2, **options) as service:
        service.insert([f"p{i}" for i in range(600)], X, y)
        service.publish()
        [receipt] = service.delete("p7")
        assert receipt["guarantee"].startswith("per-record") and receipt["epsilon"] <= 1
        if not service.status["published"]:
            service.publish()
        assert np.mean(np.sign(service.predict(X)) == y) > 0.8


def test_refusals_of_a_service_name_the_remedy(churn, tmp_path):
    service, X, y = churn
    for call, says in [
        (lambda: service.delete("nobody"), "nobody"),
        (lambda: service.delete([]), "no subject"),
        (lambda: service.insert(["a"], X[:2], y[:2]), "1 subjects, 2 records and 2 labels"),
        (lambda: service.insert(["a"], [[np.nan, 1.0]], [1.0]), "feature 0 is nan"),
        (lambda: service.insert(["a"], [[1.0, 1.0, 1.0]], [1.0]), "this model expects 2"),
        (lambda: service.insert(["a"], [1.0, 1.0], [1.0]), "2 dimensions"),
        (lambda: Service.create(service.folder, dimension=2), "exists"),
        (lambda: Service.create(tmp_path / "x", "forest", dimension=2), "exact, erm or stream"),
        (lambda: Service.create(tmp_path / "x", dimension=2, tau=1), "unknown option tau"),
        (lambda: Service(tmp_path / "nowhere"), "No such file"),
    ]:
        with pytest.raises(discreet.Error, match=says):
            call()
    assert service.status["live"] == 300 and not (tmp_path / "x").exists()
    service.delete("person-5")
    with pytest.raises(discreet.Error, match="person-5"):
        service.insert(["person-5"], X[:1], y[:1])
    assert service.insert(["person-5"], X[:1], y[:1], reinsert=True) == 1


def test_nothing_secret_is_in_a_receipt(churn):
    service, _, _ = churn
    [receipt] = service.delete("person-9")
    key = pathlib.Path(service.key).read_text()
    assert "PRIVATE" in key and "PRIVATE" not in json.dumps(receipt)


# ---------------------------------------------------------------- the form of records


def people(n=400, seed=1):
    rng = np.random.default_rng(seed)
    age, hours, country = rng.uniform(18, 90, n), rng.uniform(5, 80, n), rng.choice(["US", "MX", "FR"], n)
    return age, hours, country, 300 * age + 200 * hours + 4000 * (country == "US")


DECLARED = dict(bounds={"age": (0, 120), "hours": (0, 100)}, categories={"country": ["US", "*"]})


def test_declared_columns_answer_in_class_names_from_frames_and_from_arrays(tmp_path):
    pd = pytest.importorskip("pandas")
    age, hours, country, pay = people()
    frame = pd.DataFrame({"country": country, "note": "-", "hours": hours, "age": age})
    rich = np.where(pay > 26000, "high", "low")
    with Service.create(tmp_path / "m", "erm", classes=["low", "high"], N=400, n_max=800, lambda_=1e-4, **DECLARED) as service:
        assert service.columns == ["age", "hours", "country"] and service.classes == ["low", "high"]
        assert service.insert([f"p{i}" for i in range(400)], frame, rich) == 400
        assert service.insert([f"p{i}" for i in range(400)], frame, rich) == 0  # the same request
        service.publish()
        said = service.predict(frame)
        assert np.mean(said == rich) > 0.93 and set(said) == {"low", "high"}
        table = np.array([age, hours, country], dtype=object).T  # in the order of service.columns
        assert (service.predict(table) == said).all() and ((service.scores(table) > 0) == (said == "high")).all()
        [receipt] = service.delete("p3", request="ticket")
        assert receipt["opening"]["records"] == [3] and service.knows("ticket") and not service.knows("other")
        service.publish()
        assert service.verify(test=(frame, rich), runs=200)["holds"]
    with Service(tmp_path / "m") as again:  # the form is in the store
        assert (again.predict(frame) == said).mean() > 0.98


def test_a_number_is_answered_in_its_own_units_and_the_command_agrees(tmp_path):
    age, hours, country, pay = people()
    config = {"data": {"format": "csv", "label": "pay", "label_bounds": [0, 50000], "categorical": {"country": ["US", "*"]},
                       "numeric": {"age": [0, 120], "hours": [0, 100]}}}
    X = np.array([age, hours, country], dtype=object).T
    with Service.create(tmp_path / "m", config=config, N=400, n_max=800, lambda_=1e-6) as service:
        service.insert([f"p{i}" for i in range(400)], X, pay)
        service.publish()
        said = service.predict(X[:3])
    np.testing.assert_allclose(said, pay[:3], rtol=0.02)
    lines = [f"{h!r},{c},{a!r}" for a, h, c in zip(age[:3].tolist(), hours[:3].tolist(), country[:3])]
    (tmp_path / "new.csv").write_text("\n".join(["hours,country,age", *lines]) + "\n")
    found = json.loads(command("unlearn", "predict", tmp_path / "m", tmp_path / "new.csv", "--json").stdout)
    np.testing.assert_allclose(found["predictions"], said, rtol=1e-12)


def test_records_and_labels_beyond_the_bounds_are_moved_with_a_warning(tmp_path):
    with Service.create(tmp_path / "m", dimension=2, N=10, n_max=10, lambda_=1 / 30) as service:
        with pytest.warns(UserWarning, match="1 of 1 records exceed the norm bound.*confidential"):
            service.insert(["ann"], [[6.0, 8.0]], [1.0])
        service.publish()
        # w = z / (1 + lambda N) with z of norm 1, so that z'w is 0.75 for every record in this direction beyond the bound
        np.testing.assert_allclose(service.predict([[6.0, 8.0], [60.0, 80.0]]), 0.75, atol=1e-5)
        with pytest.warns(UserWarning, match="2 of 3 labels exceed"):
            service.insert(["a", "b", "c"], np.zeros((3, 2)), [-3.0, 0.5, 2.0])


def test_an_intercept_is_learned(tmp_path):
    X = np.linspace(-0.5, 0.5, 100)[:, None]
    with Service.create(tmp_path / "m", dimension=1, intercept=True, N=100, n_max=200, lambda_=1e-3) as service:
        service.insert([f"p{i}" for i in range(100)], X, np.ones(100))
        service.publish()
        np.testing.assert_allclose(service.predict([[0.0]]), 1, atol=0.02)


@pytest.mark.parametrize("options, says", [
    (dict(), "either dimension"),
    (dict(dimension=3, classes=["a", "b"], **DECLARED), "either dimension"),
    (dict(classes=["a", "b", "c"], **DECLARED), "keep two"),
    (dict(**DECLARED), "classes is missing"),
    (dict(config="data: {format: csv}", classes=["a", "b"]), "config declares"),
    (dict(classes=["a", "b"], bounds={"a": (1, 0)}), "lower and a larger upper"),
])
def test_a_form_that_does_not_fit_is_refused(tmp_path, options, says):
    with pytest.raises(discreet.Error, match=says):
        Service.create(tmp_path / "m", **options)
    assert not (tmp_path / "m").exists()


def test_columns_that_do_not_fit_are_refused(tmp_path):
    with Service.create(tmp_path / "m", classes=["low", "high"], **DECLARED) as service:
        X = np.array([[30, 40, "US"]], dtype=object)
        for call, says in [
            (lambda: service.insert(["a"], X[:, :2], ["low"]), "2 columns; this model expects 3: age, hours, country"),
            (lambda: service.insert(["a"], X, ["middle"]), "not one of the declared classes"),
            (lambda: service.insert(["a", "b"], X, ["low"]), "2 subjects and 1 records"),
        ]:
            with pytest.raises(discreet.Error, match=says):
                call()
        assert service.status["live"] == 0
