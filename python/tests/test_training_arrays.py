"""discreet.train on arrays and data frames, and what a Run does afterwards."""

import gzip
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import discreet

DISCREET = os.environ.get("DISCREET", "build/discreet")
TRAIN = dict(target_epsilon=3, target_delta=1e-5, epochs=5)


def records(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    return X, (X[:, 0] > X[:, 1]).astype(int)


def error_of(call):
    with pytest.raises(discreet.Error) as refused:
        call()
    return refused.value


def test_a_model_from_arrays_is_that_of_the_same_csv_file(tmp_path):
    X, y = records(300)
    X[0] = [1 / 3, -2e-17, 0.1 + 0.2]  # long decimals
    rows = "".join(f"{a!r},{b!r},{c!r},{k}\n" for (a, b, c), k in zip(X.tolist(), y))
    (tmp_path / "d.csv").write_text("x0,x1,x2,y\n" + rows)
    settings = {"secure": False, "seed": 7, "sampling_rate": 0.1, "run.epochs": 3, "noise_multiplier": 1, "target_epsilon": 50,
                "declared_size": 300}
    arrays = discreet.train(X, y, tmp_path / "a", bounds=(-1, 1), classes=[0, 1], settings=settings)
    file = discreet.train({"data": {"format": "csv", "train": str(tmp_path / "d.csv"), "label": "y", "classes": ["0", "1"],
                                    "numeric": {f"x{k}": [-1, 1] for k in range(3)}}}, tmp_path / "f", settings=settings)
    assert all(np.array_equal(arrays.model[name], file.model[name]) for name in file.model)
    (tmp_path / "new.csv").write_text("x0,x1,x2\n0.5,-0.5,0\n-0.5,0.5,0\n")
    out = subprocess.run([DISCREET, "predict", tmp_path / "a", tmp_path / "new.csv"], capture_output=True, text=True,
                         check=True)
    assert out.stdout.split() == [str(k) for k in arrays.predict([[0.5, -0.5, 0], [-0.5, 0.5, 0]])]


def test_trains_predicts_and_reports(tmp_path):
    X, y = records()
    run = discreet.train(X, y, tmp_path / "run", bounds=(-1, 1), classes=[0, 1], test=records(400, seed=1), **TRAIN)
    assert run.ended == "completed" and run.epsilon.upper <= 3 and run.delta == 1e-5
    assert run.adjacency == "zero_out"  # no size was declared
    X_new, y_new = records(400, seed=1)
    assert run.accuracy == pytest.approx(np.mean(run.predict(X_new) == y_new)) and run.accuracy > 0.8
    proba = run.predict_proba(X_new)
    assert proba.shape == (400, 2) and np.allclose(proba.sum(axis=1), 1)
    weights, bias = run.model["layer0.weight"], run.model["layer0.bias"]
    scores = np.clip(X_new, -1, 1) @ weights.T + bias
    np.testing.assert_allclose(proba[:, 1], 1 / (1 + np.exp(scores[:, 0] - scores[:, 1])), atol=1e-5)
    assert run.report().read_text().startswith("<!doctype html") and run.report().stat().st_mode & 0o777 == 0o600
    public = run.report(tmp_path / "p.html", public=True).read_text()
    # As the report shows it; bare digits occur by chance in the coordinates of a plot.
    card = f"{100 * run.accuracy:.2f}%"
    assert card in run.report().read_text() and card not in public and "Accuracy" not in public
    opened = discreet.open_run(tmp_path / "run")
    assert (opened.epsilon, opened.steps, opened.accuracy, opened.ended) == (run.epsilon, run.steps, run.accuracy, run.ended)
    assert np.array_equal(opened.predict(X_new), run.predict(X_new))
    declared = discreet.train(X, y, bounds=(-1, 1), classes=[0, 1], declared_size=2000, **TRAIN)
    assert declared.adjacency == "add_remove"


def test_no_copy_of_the_records_is_written_and_a_temporary_run_is_removed():
    X, y = records(200)
    X[17] = [0.123456789012345, 0.2, 0.3]
    run = discreet.train(X, y, bounds=(-1, 1), classes=[0, 1], **TRAIN)
    folder = run.directory
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {f.name for f in folder.iterdir()} >= {"secret.key", "trace.jsonl", "model.safetensors"}
    assert not any(b"0.123456789012345" in f.read_bytes() or X[17].tobytes() in f.read_bytes() for f in folder.iterdir())
    loaded = pickle.loads(pickle.dumps(run))
    assert loaded.epsilon == run.epsilon
    del run
    assert not folder.exists()


def test_unknown_bounds_are_released_privately_and_applied(tmp_path):
    X, y = records(4000)
    X[:, 0] *= 50
    y = (X[:, 0] > 0).astype(int)
    run = discreet.train(X, y, tmp_path / "r", bounds={"x1": (-1, 1)}, classes=[0, 1], **TRAIN)
    assert run.predictor.released_bounds.keys() == {"x0", "x2"}
    assert run.predictor.released_bounds["x0"] == [-64, 64] and run.epsilon.upper <= 3
    assert any("released privately: x0 in [-64, 64]" in note for note in run.notes)
    assert discreet.open_run(tmp_path / "r").notes == run.notes
    assert np.mean(run.predict(X) == y) > 0.9
    few = error_of(lambda: discreet.train(X[:30], y[:30], classes=[0, 1], **TRAIN))
    assert few.code == "INVALID_DP_CONFIG" and "declare" in few.sentence


def test_data_frames_with_categories_missing_values_and_other_column_orders(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = records(1200)
    frame = pd.DataFrame({"age": X[:, 0], "country": np.where(X[:, 1] > 0, "US", "FR"), "member": X[:, 2] > 0,
                          "rank": pd.array(np.arange(1200) % 3, dtype="Int64"), "note": "free text"})
    labels = pd.Series(np.where(X[:, 0] > X[:, 1], "yes", "no"))
    how = dict(bounds={"age": (-1, 1), "member": (0, 1), "rank": (0, 2)}, classes=["no", "yes"], **TRAIN)
    run = discreet.train(frame.drop(columns="note"), labels, categories={"country": ["US", "*"]}, **how)
    assert run.predictor.columns == ["age", "country", "member", "rank"]
    shuffled = frame[["note", "rank", "member", "country", "age"]]
    assert np.array_equal(run.predict(frame), run.predict(shuffled))
    assert np.mean(run.predict(frame) == labels) > 0.7 and run.predict(frame).dtype.kind == "U"
    with_nothing = frame.drop(columns="note").copy()
    with_nothing.loc[5, "age"] = np.nan
    bad = error_of(lambda: discreet.train(with_nothing, labels, categories={"country": ["US", "*"]}, **how))
    assert bad.code == "MALFORMED" and "row 5, column age: is empty" in bad.sentence
    discreet.train(with_nothing, labels, categories={"country": ["US", "*"]}, on_bad_row="skip", **how)
    words = error_of(lambda: discreet.train(frame.drop(columns="note"), labels, **how))
    assert "categories={'country': [...]}" in words.sentence
    unknown = error_of(lambda: discreet.train(frame.drop(columns="note"), labels, categories={"country": ["US"]}, **how))
    assert "not in the declared vocabulary" in unknown.sentence
    lost = error_of(lambda: run.predict(frame.drop(columns="age")))
    assert "no column age" in lost.sentence
    polarised = error_of(lambda: run.predict(frame.assign(country="DE", age=np.inf)))
    assert "age" in polarised.sentence


def test_numbers_are_predicted_in_their_own_units():
    X, _ = records(2000)
    y = 100 + 20 * X[:, 0] - 10 * X[:, 1]
    run = discreet.train(X, y, bounds=(-1, 1), label_bounds=(50, 150), target_epsilon=8, epochs=20,
                         settings={"optimizer.rate": 1})
    predicted = run.predict(X)
    assert np.sqrt(np.mean((predicted - y) ** 2)) < 0.5 * y.std()
    assert "predict_proba" in error_of(lambda: run.predict_proba(X)).op


@pytest.mark.parametrize("how, code, says", [
    (dict(), "INVALID_INPUT", "classes is missing; list every label"),
    (dict(classes=[0, 1], label_bounds=(0, 1)), "INVALID_INPUT", "both set"),
    (dict(classes="all"), "INVALID_INPUT", "'public'"),
    (dict(classes=[0]), "INVALID_DP_CONFIG", "at least two"),
    (dict(classes=[5, 6], bounds=(-1, 1)), "MALFORMED", "not one of the declared classes"),
    (dict(classes=[0, 1], bounds=(1, -1)), "INVALID_INPUT", "larger upper bound"),
    (dict(classes=[0, 1], bounds=(0, np.inf)), "INVALID_INPUT", "finite"),
    (dict(classes=[0, 1], bounds=([0, 0], [1, 1])), "INVALID_INPUT", "one number per column (3)"),
    (dict(classes=[0, 1], bounds={"x9": (0, 1)}), "INVALID_INPUT", "not a column of X"),
    (dict(classes=[0, 1], bounds={"x0": 3}), "INVALID_INPUT", "must be (lower, upper)"),
    (dict(classes=[0, 1], categories={"x7": ["a"]}), "INVALID_INPUT", "not a column of X"),
    (dict(classes=[0, 1], bounds=(-1, 1), declared_size=10), "INVALID_DP_CONFIG", "declared_size is 10"),
    (dict(classes=[0, 1], bounds=(-1, 1), target_epsilon=None), "INVALID_DP_CONFIG", "target_epsilon is missing"),
    (dict(classes=[0, 1], bounds=(-1, 1), target_epsilon=-1), "INVALID_DP_CONFIG", "target_epsilon"),
    (dict(classes=[0, 1], bounds=(-1, 1), config={"data": {"train": "d.csv"}}), "INVALID_DP_CONFIG", "arrays"),
    (dict(label_bounds=(0, 1), bounds=(-1, 1), config={"model": {"kind": "softmax"}}), "INVALID_DP_CONFIG", "linear or mlp"),
])
def test_what_is_missing_or_wrong_is_named(how, code, says):
    X, y = records(300)
    error = error_of(lambda: discreet.train(X, y, **{**TRAIN, **how}))
    assert error.code == code and says in error.sentence


@pytest.mark.parametrize("X, y, says", [
    (np.zeros((0, 3)), np.zeros(0, int), "no records"),
    (np.zeros((3, 0)), np.zeros(3, int), "no columns"),
    (np.zeros(3), np.zeros(3, int), "two dimensions"),
    (np.zeros((3, 2, 2)), np.zeros(3, int), "two dimensions"),
    (np.zeros((3, 2)), np.zeros(4, int), "3 records, but y has 4"),
    (np.zeros((3, 2)), np.zeros((3, 2)), "one dimension"),
    (np.zeros((3, 2), complex), np.zeros(3, int), "complex"),
    (np.zeros((3, 2), "M8[s]"), np.zeros(3, int), "datetime64"),
    (np.array([["a", "b"]] * 3), np.zeros(3, int), "categories"),
    (np.array([[1.0, np.nan]] * 3), np.zeros(3, int), "row 0, column x1: is empty"),
    (np.array([[1.0, -np.inf]] * 3), np.zeros(3, int), "row 0, column x1"),
    (np.zeros((3, 2)), None, "y is missing"),
    (np.zeros((3, 2)), np.array([0, 1, "\ud800"], object), "surrogate"),
])
def test_malformed_records_are_errors(X, y, says):
    assert says in error_of(lambda: discreet.train(X, y, bounds=(-1, 1), classes=[0, 1], **TRAIN)).sentence


def test_labels_of_type_bool_and_public_classes_need_no_list():
    X, y = records(400)
    run = discreet.train(X, y.astype(bool), bounds=(-1, 1), **TRAIN)
    assert set(run.predict(X)) <= {"False", "True"}
    run = discreet.train(X, y + 5, bounds=(-1, 1), classes="public", **TRAIN)
    assert run.predictor.classes == [5, 6] and "public knowledge" in run.notes[0]


def test_sparse_matrices_and_narrow_predictions_are_refused():
    sparse = pytest.importorskip("scipy.sparse")
    X, y = records(300)
    assert "toarray" in error_of(lambda: discreet.train(sparse.csr_matrix(X), y, classes=[0, 1], **TRAIN)).sentence
    run = discreet.train(X, y, bounds=(-1, 1), classes=[0, 1], **TRAIN)
    for bad, says in [(X[:, :2], "2 columns"), (X[:0], "no records"), (X[0], "two dimensions"), (X * np.nan, "row 0")]:
        assert says in error_of(lambda bad=bad: run.predict(bad)).sentence


def test_a_run_on_arrays_resumes_with_the_same_records_only(tmp_path):
    X, y = records(300)
    how = dict(bounds=(-1, 1), classes=[0, 1], **TRAIN)
    first = discreet.train(X, y, tmp_path / "r", **how)
    again = discreet.train(X, y, tmp_path / "r", resume=True, **how)
    assert again.epsilon == first.epsilon and again.trace == first.trace
    X[0, 0] += 0.01
    assert "data" in error_of(lambda: discreet.train(X, y, tmp_path / "r", resume=True, **how)).sentence
    assert "arrays" in error_of(lambda: discreet.train((tmp_path / "r" / "config.yaml"), tmp_path / "s")).sentence


def test_mixed_up_arguments_say_which_form_to_call(tmp_path):
    for call in (lambda: discreet.train(), lambda: discreet.train("run: {}\n"),
                 lambda: discreet.train("run: {}\n", [1], tmp_path / "r")):
        assert "train(config, " in error_of(call).sentence


def test_settings_and_presets_count_as_given():
    X, y = records(400)
    run = discreet.train(X, y, bounds=(-1, 1), classes=[0, 1], target_epsilon=5,
                         settings={"noise_multiplier": 4, "run.epochs": 2, "sampling_rate": 0.5})
    assert run.steps == 4 and run.epsilon.upper < 3


@pytest.mark.parametrize("preset", ["llm_flash", "peft_max_utility", "regulated_fair", "frontier_trillion"])
def test_every_preset_trains(tmp_path, preset):
    X, y = records(1500)
    run = discreet.train(X, y, tmp_path / "run", bounds=(-1, 1), classes=[0, 1], target_epsilon=8, epochs=2, hidden=[8],
                         config={"security": {"differential_privacy": {"extends": preset}}},
                         settings={"model.groups": {"body": ["layer0"]}} if preset == "regulated_fair" else None)
    assert run.steps > 0 and run.epsilon.upper <= 8 and run.not_private == []
    assert run.predict(X).shape == (1500,)
    header = json.loads((tmp_path / "run" / "trace.jsonl").read_text().splitlines()[0])
    steps = steps_of(tmp_path / "run")
    expected = {"llm_flash": ("per_layer", {"layer0", "layer1"}, "FlashEfficientClip_v1"),
                "peft_max_utility": ("peft_targeted", {"all"}, "Clip_v1"),
                "regulated_fair": ("per_group", {"body", "layer1"}, "Clip_v1"),
                "frontier_trillion": ("hybrid", {"layer0", "layer1"}, "Clip_v1")}[preset]
    assert (header["clipping_strategy"], set(header["allocation_map"]), header["clip_operator"]) == expected
    assert header["fused_kernel"] is (preset == "llm_flash")
    assert ("delta_eps" in steps[0]) is (preset in ("llm_flash", "regulated_fair"))  # bounds follow the norms, at a cost
    assert header["safety_budget_reserve"] == (0.12 if preset == "regulated_fair" else 0.08)
    assert (steps[0]["noise_scale_sigma"] == 0.7) is (preset == "peft_max_utility")
    assert (header["dp_mode"] == "dynamic_projection") is (preset == "frontier_trillion")
    assert any(note.startswith(f"the preset {preset} sets ") for note in run.notes)
    idle = {"llm_flash": "parallelism.type fsdp2", "peft_max_utility": "privacy_allocation layer_wise has no effect",
            "frontier_trillion": "fused_kernel has no effect: the strategy hybrid"}.get(preset, "")
    assert any(note.startswith(idle) for note in run.notes)


CTRL_C = """
import numpy as np, sys, discreet
X = np.random.default_rng(0).uniform(-1, 1, size=(500, 3)); y = (X[:, 0] > 0).astype(int)
def progress(p):
    if p["step"] == 3: print("running", flush=True)
run = discreet.train(X, y, bounds=(-1, 1), classes=[0, 1], target_epsilon=3, epochs=100000, progress=progress)
print(run.ended, run.epsilon.upper <= 3, run.steps < run.planned_steps)
"""


def test_ctrl_c_ends_the_run_after_its_step():
    with subprocess.Popen([sys.executable, "-c", CTRL_C], stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout.readline().strip() == "running"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().split() == ["interrupted", "True", "True"] and process.wait() == 0


def test_training_leaves_other_threads_running():
    X, y = records(1500)
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    discreet.train(X, y, bounds=(-1, 1), classes=[0, 1], hidden=[64], target_epsilon=3, epochs=20)
    done.set()
    thread.join()
    assert counted[0] > 3


def test_the_digits_and_a_mapping_still_train_and_predict(tmp_path):
    run = discreet.train({"data": {"format": "digits"}, "security": {"differential_privacy": {
        "target_epsilon": 8, "target_steps": 20, "declared_size": 1437, "effective_batch_size": 128, "noise_multiplier": 1}}},
        tmp_path / "r")
    images = np.zeros((2, 64))
    assert run.predict(images).shape == (2,) and run.predictor.columns[:2] == ["p0", "p1"]
    assert json.loads((tmp_path / "r" / "trace.jsonl").read_text().splitlines()[0])["kind"] == "run_header"


@pytest.mark.parametrize("settings", [{"secure": False}, {"clipping.norm": "adaptive", "allow_nonprivate_adaptation": True,
                                                         "privacy.adaptive_accounting": "heuristic"}])
def test_a_run_that_is_not_private_has_no_epsilon(tmp_path, settings):
    X, y = records(300)
    run = discreet.train(X, y, tmp_path / "run", bounds=(-1, 1), classes=[0, 1], settings=settings, **TRAIN)
    assert run.not_private and run.epsilon is None
    assert discreet.open_run(tmp_path / "run").epsilon is None


def test_a_table_of_endless_columns_takes_no_memory(tmp_path):
    with gzip.open(tmp_path / "wide.csv.gz", "wb") as file:
        file.write(b"," * (1 << 24) + b"\n")
    data = {"format": "csv", "train": str(tmp_path / "wide.csv.gz"), "label": "y", "classes": ["0", "1"],
            "numeric": {"x": [0, 1]}}
    privacy = {"target_epsilon": 1, "target_delta": 1e-5, "target_steps": 1, "declared_size": 100, "effective_batch_size": 10}
    error = error_of(lambda: discreet.train({"data": data}, tmp_path / "run", settings=privacy))
    assert "at most 1048576 columns" in error.sentence


def steps_of(run):
    return [line for line in map(json.loads, (run / "trace.jsonl").read_text().splitlines()) if line["kind"] == "iter"]


def test_the_trace_states_what_adaptation_costs_and_shuffling_gives_without_changing_epsilon(tmp_path):
    X, y = records(400)
    how = dict(bounds=(-1, 1), classes=[0, 1], target_epsilon=8, target_delta=1e-5, epochs=3)
    discreet.train(X, y, tmp_path / "plain", **how)
    assert not {"delta_eps", "amplification_factor"} & steps_of(tmp_path / "plain")[0].keys()
    discreet.train(X, y, tmp_path / "adaptive", settings={"clipping.norm": "adaptive"}, **how)
    for step in steps_of(tmp_path / "adaptive"):
        # Part of the cumulative epsilon, not on top of it.
        assert 0 < step["delta_eps"] < step["cumulative_epsilon_after"] and "amplification_factor" not in step
    discreet.train(X, y, tmp_path / "bins", declared_size=400, batch_size=40,
                   settings={"sampling_mode": "SHUFFLE_WITHOUT_REPLACEMENT_BALLS_AND_BINS_V1"}, **how)
    assert all(step["amplification_factor"] > 1 for step in steps_of(tmp_path / "bins"))


def test_epsilon_is_computed_twice_where_the_configuration_asks_for_it(tmp_path):
    X, y = records(400)
    how = dict(bounds=(-1, 1), classes=[0, 1], target_epsilon=8, target_delta=1e-5, epochs=2)
    run = discreet.train(X, y, tmp_path / "run", settings={"verify_accounting": True}, **how)
    assert run.ended == "completed" and "verify_accounting: true" in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.parametrize("factor", [1, 2, 100])
def test_ghost_clipping_is_accounted_at_the_rate_times_the_declared_factor(tmp_path, factor):
    X, y = records(400)
    run = discreet.train(X, y, tmp_path / "run", bounds=(-1, 1), classes=[0, 1], target_epsilon=50, target_delta=1e-5,
                         declared_size=400, settings={"effective_batch_size": 20, "target_steps": 20, "noise_multiplier": 1,
                                                      "clipping.strategy": "ghost", "accounting_adjustment_factor": factor})
    exact = discreet.account(sampling_rate=min(1, factor * 20 / 400), noise_multiplier=1, steps=20, delta=1e-5).epsilon
    assert exact.upper <= run.epsilon.upper <= exact.upper * 1.03 and run.steps == 20


def test_one_parameter_and_one_record_train():
    run = discreet.train(np.array([[0.5]]), np.array([0.3]), bounds=(-1, 1), label_bounds=(0, 1), target_epsilon=3,
                         target_delta=1e-5, declared_size=1, settings={"effective_batch_size": 1, "target_steps": 2,
                                                                       "noise_multiplier": 3})
    assert run.steps == 2 and {name: array.size for name, array in run.model.items()} == {"layer0.weight": 1, "layer0.bias": 1}
    exact = discreet.account(sampling_rate=1, noise_multiplier=3, steps=2, delta=1e-5).epsilon.upper
    assert exact <= run.epsilon.upper <= exact * 1.001


GHOST = r"""
import re, numpy as np, discreet
X = np.random.default_rng(0).uniform(-1, 1, size=(300, 2048)); y = (X[:, 0] > 0).astype(int)
discreet.train(X, y, bounds=(-1, 1), classes=[0, 1], hidden=[512], target_epsilon=8, target_delta=1e-5, declared_size=300,
               settings={"target_steps": 1, "effective_batch_size": 200, "clipping.strategy": "ghost"})
print(re.search(r"VmHWM:\s*(\d+) kB", open("/proc/self/status").read())[1])
"""


def test_ghost_clipping_never_holds_the_gradients_of_the_records():
    out = subprocess.run([sys.executable, "-c", GHOST], capture_output=True, text=True, check=True)
    # In binary32 they take 200 * 4 MiB.
    assert int(out.stdout) < 200 * 4096 / 2
