"""discreet train, demo, replay, trace and predict; NumPy and safetensors are the oracles."""

import csv
import io
import json
import pathlib
import shutil
import stat

import jsonschema
import numpy as np
import pytest
import safetensors.numpy
from command import discreet

ROOT = pathlib.Path(__file__).parents[2]

DIGITS = """
data: {format: digits}
model: {kind: softmax}
optimizer: {rate: 4}
run: {checkpoint_every: 10}
security:
  differential_privacy:
    accountant: rdp
    target_epsilon: 30
    target_steps: 24
    declared_size: 1437
    effective_batch_size: 128
    noise_multiplier: 1
    clipping: {norm: 1, ghost: true}
"""

PEOPLE = """
data:
  format: csv
  train: people.csv
  label: income
  label_bounds: [0, 100]
  numeric: {age: [0, 120]}
  categorical: {city: [Rome, Oslo, "*"]}
  holdout: 0.25
model: {kind: linear}
optimizer: {rate: 0.3}
security:
  differential_privacy:
    accountant: rdp
    target_epsilon: 30
    target_steps: 40
    declared_size: 300
    effective_batch_size: 60
    noise_multiplier: 0.8
    clipping: {norm: 1, ghost: true}
"""


def train(config, out, *args, **kwargs):
    return discreet("train", "-", "--out", str(out), *args, input=config, **kwargs)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "digits"
    result = train(DIGITS, folder, "--json")
    assert result.returncode == 0, result.stderr
    folder_result = json.loads(result.stdout)
    return folder, folder_result, result.stderr


def lines(folder):
    return [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]


def test_train_ends_with_one_object_and_a_line_per_epoch(run):
    folder, result, progress = run
    assert result["run"] == str(folder)
    for name in ("secret.key", "trace.jsonl", "checkpoint.cbor"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
    assert 0 <= result["epsilon"]["lower"] <= result["epsilon"]["upper"] <= 30
    assert (result["delta"], result["adjacency"]) == (1e-5, "add_remove")
    assert (result["steps"], result["ended"], result["not_private"]) == (24, "completed", [])
    assert result["accuracy"] > 0.6
    assert progress.count("epoch ") == 2
    end = lines(folder)[-1]
    assert (end["kind"], end["status"]) == ("run_end", "success") and "failure_code" not in end


def test_text_says_what_the_accuracy_is_not(tmp_path):
    result = train(DIGITS, tmp_path / "r")
    assert result.returncode == 0
    assert "epsilon    ≤" in result.stdout
    assert "held-out records have no guarantee" in result.stdout
    assert "hyper-parameters chosen on this data are not covered" in result.stdout


def test_model_opens_in_safetensors_and_predicts_as_numpy_does(run, tmp_path):
    folder, result, _ = run
    model = safetensors.numpy.load_file(folder / "model.safetensors")
    assert {k: (v.shape, v.dtype) for k, v in model.items()} == {
        "layer0.weight": ((10, 64), np.float32), "layer0.bias": ((10,), np.float32)}
    pixels = np.random.default_rng(1).integers(0, 17, size=(20, 64))
    records = tmp_path / "records.csv"
    records.write_text("\n".join([",".join(f"p{i}" for i in range(64)),
                                  *(",".join(map(str, row)) for row in pixels)]) + "\n")
    answer = discreet("predict", str(folder), str(records))
    assert answer.returncode == 0, answer.stderr
    scores = pixels / 16 @ model["layer0.weight"].T + model["layer0.bias"]
    assert [int(line) for line in answer.stdout.split()] == list(scores.argmax(axis=1))


def test_trace_as_table_json_and_csv(run):
    folder, result, _ = run
    table = discreet("trace", str(folder)).stdout
    assert table.startswith("confidential")
    assert "completed after 24 steps" in table
    assert json.loads(discreet("trace", str(folder), "--json").stdout) == lines(folder)
    rows = list(csv.DictReader(io.StringIO(discreet("trace", str(folder), "--csv").stdout)))
    assert [int(row["t"]) for row in rows] == list(range(24))
    assert float(rows[-1]["cumulative_epsilon_after"]) == result["epsilon"]["upper"]


# Settings, and what the header must then say; no two cases share a value of any key but parallelism.
HEADERS = [
    ({"mode": "fixed", "accountant": "rdp", "clipping.strategy": "per_sample", "clipping.ghost": "false",
      "sampling_mode": "POISSON_V1"},
     {"dp_mode": "fixed", "accountant": "rdp", "clipping_strategy": "per_sample", "sampling_mode": "POISSON_V1",
      "subsampling": "POISSON", "noise_seed_per_step": False, "privacy_allocation_mode": "uniform",
      "safety_budget_reserve": 0.08, "parallelism.type": "dp_only", "adjacency": "add_remove"}),
    ({"mode": "step_decay", "decay.every": 2, "accountant": "pld", "clipping.strategy": "per_layer", "clipping.ghost": "false",
      "subsampling": "NONE", "noise_seed_per_step": "true", "privacy_allocation": "layer_wise", "safety_budget_reserve": 0.25,
      "parallelism.type": "fsdp2"},
     {"dp_mode": "step_decay", "accountant": "pld", "clipping_strategy": "per_layer", "sampling_mode": "SEQUENTIAL_V1",
      "subsampling": "NONE", "noise_seed_per_step": True, "privacy_allocation_mode": "layer_wise",
      "safety_budget_reserve": 0.25, "parallelism.type": "dp_only", "adjacency": "zero_out"}),
]


@pytest.mark.parametrize("settings, expected", HEADERS, ids=["poisson", "in_order"])
def test_trace_states_what_was_configured_and_spent(tmp_path, settings, expected):
    options = [word for key, value in (settings | {"target_steps": 3}).items() for word in ("--set", f"{key}={value}")]
    result = train(DIGITS, tmp_path / "r", *options, "--json")
    assert result.returncode == 0, result.stderr
    trace = json.loads(discreet("trace", str(tmp_path / "r"), "--json").stdout)
    header, end, steps = trace[0], trace[-1], [line for line in trace if line["kind"] == "iter"]
    assert {key: header[key] for key in expected} == expected and "corpus" not in header
    assert [step["t"] for step in steps] == [0, 1, 2] == list(range(end["t"]))
    assert steps[0]["cumulative_epsilon_before"] == 0 < steps[0]["cumulative_epsilon_after"]
    for before, after in zip(steps, steps[1:]):
        assert after["cumulative_epsilon_before"] == before["cumulative_epsilon_after"] < after["cumulative_epsilon_after"]
        assert after["dp_replay_t"] != before["dp_replay_t"]
    for step in steps:
        by_pld = step["cumulative_epsilon_after"] if expected["accountant"] == "pld" else None
        assert step["pld_epsilon_tight"] == by_pld and step["accountant_type_used"] == expected["accountant"]
    assert [step["noise_scale_sigma"] for step in steps] == [1, 1, 0.5 if expected["dp_mode"] == "step_decay" else 1]
    spent = json.loads(result.stdout)["epsilon"]
    assert spent == end["epsilon"] == end["final_epsilon"] and spent["upper"] == steps[-1]["cumulative_epsilon_after"]
    assert (end["ended"], end["budget_status"]) == ("completed", "within_budget")


def test_every_line_of_a_trace_is_valid_under_its_schema(run, tmp_path):
    schema = json.loads((ROOT / "discreet/run/trace.schema.json").read_text())
    valid = jsonschema.Draft202012Validator(schema)
    others = [["target_epsilon=3"], ["enabled=false"], ["metrics.release=dp", "clipping.norm=adaptive"],
              ["clipping.strategy=per_layer", "sampling_mode=SHUFFLE_WITHOUT_REPLACEMENT_BALLS_AND_BINS_V1", "accountant=pld"]]
    folders = [run[0]]
    for settings in others:
        folders.append(tmp_path / settings[0])
        result = train(DIGITS, folders[-1], *(word for setting in settings for word in ("--set", setting)))
        assert result.returncode == 0, result.stderr
    rules = {rule["if"]["properties"]["kind"]["const"]: rule["then"] for rule in schema["allOf"]}
    kinds = set()
    for folder in folders:
        for line in lines(folder):
            valid.validate(line)
            kinds.add(line["kind"])
    assert kinds == {"run_header", "iter", "evaluation", "warning", "failure", "run_end"}
    for kind in ("run_header", "iter", "run_end"):  # a field that is missing or of another type is not
        line = next(line for line in lines(run[0]) if line["kind"] == kind)
        for field in rules[kind]["required"]:
            assert not valid.is_valid({name: value for name, value in line.items() if name != field}), field
            assert not valid.is_valid(line | {field: [[]]}), field


def test_replay_repeats_every_bit(run):
    folder, _, _ = run
    result = discreet("replay", str(folder), "--threads", "2", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {"same": True, "steps": 24, "lines": len(lines(folder)),
                                         "environment_difference": None, "first_difference": None}


def test_replay_names_the_first_difference(run, tmp_path):
    folder, _, _ = run
    other = tmp_path / "other"
    assert train(DIGITS, other).returncode == 0
    shutil.copy(folder / "secret.key", other / "secret.key")
    result = discreet("replay", str(other))
    assert result.returncode == 1
    assert result.stdout.startswith("different: trace.seal was altered, or belongs to a run with another secret.key")
    shutil.copytree(folder, tmp_path / "model")
    model = bytearray((folder / "model.safetensors").read_bytes())
    model[-1] ^= 1
    (tmp_path / "model" / "model.safetensors").write_bytes(model)
    result = discreet("replay", str(tmp_path / "model"))
    assert (result.returncode, "model.safetensors" in result.stdout) == (1, True)


def test_budget_reached_is_done(tmp_path):
    result = train(DIGITS, tmp_path / "r", "--set", "target_epsilon=3", "--json")
    assert result.returncode == 0, result.stderr
    out = json.loads(result.stdout)
    assert out["ended"] == "budget_reached"
    assert 0 < out["steps"] < 24
    assert out["epsilon"]["upper"] <= 3
    assert (tmp_path / "r" / "model.safetensors").exists()
    trace = json.loads(discreet("trace", str(tmp_path / "r"), "--json").stdout)
    failures = [(line["failure_code"], line["t"]) for line in trace if line["kind"] == "failure"]
    assert failures == [("PRIVACY_BUDGET_EXCEEDED", out["steps"])]
    assert (trace[-1]["ended"], trace[-1]["budget_status"]) == ("budget_reached", "within_reserve")
    # The warning stands after the first step beyond the safety reserve, and nowhere else.
    before = [trace[i - 1] for i, line in enumerate(trace) if line["kind"] == "warning"]
    passed = [line for line in trace if line["kind"] == "iter" and line["cumulative_epsilon_after"] > 3 * (1 - 0.08)]
    assert before == passed[:1] and passed[0]["cumulative_epsilon_before"] <= 3 * (1 - 0.08)
    failure, end = lines(tmp_path / "r")[-2:]
    assert (end["status"], end["failure_code"]) == ("failed", "PRIVACY_BUDGET_EXCEEDED") and failure["kind"] == "failure"
    assert failure["failure_code"] == end["failure_code"]


def test_budget_for_no_step_at_all_is_status_1_and_leaves_nothing(tmp_path):
    result = train(DIGITS, tmp_path / "r", "--set", "target_epsilon=0.01")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: PRIVACY_BUDGET_EXCEEDED: ")
    assert not (tmp_path / "r").exists()


def test_directory_with_files_is_refused_with_the_remedy(run):
    folder, _, _ = run
    result = train(DIGITS, folder)
    assert result.returncode == 2
    assert "another directory" in result.stderr and "--resume" in result.stderr


def test_insecure_seed_repeats_and_is_stamped(tmp_path):
    outputs = []
    for name, threads in [("a", "1"), ("b", "2"), ("c", "3")]:
        result = train(DIGITS, tmp_path / name, "--insecure-seed", "5", "--threads", threads, "--json")
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["not_private"]
        outputs.append([(tmp_path / name / file).read_bytes()
                        for file in ["trace.jsonl", "model.safetensors", "checkpoint.cbor"]])
    assert outputs[0] == outputs[1] == outputs[2]
    assert "NOT PRIVATE" in train(DIGITS, tmp_path / "d", "--insecure-seed", "5").stdout


def test_without_privacy_there_is_no_epsilon(tmp_path):
    result = train(DIGITS, tmp_path / "r", "--set", "enabled=false", "--json")
    assert result.returncode == 0, result.stderr
    out = json.loads(result.stdout)
    assert out["epsilon"] is None and out["not_private"]


def test_numbers_from_a_csv_file_and_skipped_rows(tmp_path):
    draw = np.random.default_rng(2)
    rows = ["age,city,income"]
    for _ in range(400):
        age = draw.integers(0, 120)
        city = draw.choice(["Rome", "Oslo", "Paris"])
        rows.append(f"{age},{city},{age / 2 + (20 if city == 'Rome' else 0)}")
    rows.insert(200, "old,Rome,3")
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "people.yaml").write_text(PEOPLE)
    command = ["train", str(tmp_path / "people.yaml"), "--out", str(tmp_path / "r"), "--json"]
    result = discreet(*command)
    assert result.returncode == 2
    assert "people.csv:201" in result.stderr
    assert not (tmp_path / "r").exists()
    result = discreet(*command, "--on-bad-row", "skip")
    assert result.returncode == 0, result.stderr
    out = json.loads(result.stdout)
    assert out["accuracy"] is None and out["loss"] < 0.2
    answers = []
    for text in ["age,city\n100,Rome\n10,Oslo\n", "city,age\nRome,100\nOslo,10\n"]:
        (tmp_path / "new.csv").write_text(text)
        answer = discreet("predict", str(tmp_path / "r"), str(tmp_path / "new.csv"), "--json")
        assert answer.returncode == 0, answer.stderr
        answers.append(json.loads(answer.stdout)["predictions"])
    assert answers[0] == answers[1]  # whatever the order of the columns
    assert answers[0][0] > answers[0][1]


def test_demo_needs_nothing_and_keeps_its_promise(tmp_path):
    result = discreet("demo", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    out = json.loads(result.stdout)
    assert out["run"] == "discreet-demo"
    assert out["epsilon"]["upper"] <= 8
    assert out["accuracy"] >= 0.92
    assert discreet("replay", "discreet-demo", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("command", ["predict", "replay", "trace"])
def test_what_is_no_run_is_an_error(command, tmp_path):
    arguments = [str(tmp_path)] + (["x.csv"] if command == "predict" else [])
    result = discreet(command, *arguments)
    assert result.returncode in (2, 3)
    assert result.stderr.startswith("error: ")


def test_a_configuration_of_a_stranger_is_printed_without_terminal_commands(tmp_path):
    (tmp_path / "config.yaml").write_text(PEOPLE.replace("people.csv", r'"a\u009b31m\u202e\e[2J.csv"'))
    result = discreet("check", str(tmp_path / "config.yaml"), "--resolved")
    assert result.returncode == 0, result.stderr
    assert not set(result.stdout) & {"\x9b", "\u202e", "\x1b"} and r"\u009b31m\u202e" in result.stdout
    (tmp_path / "again.yaml").write_text(result.stdout)
    assert discreet("check", str(tmp_path / "again.yaml"), "--resolved").stdout == result.stdout


BUDGET = "data: {format: digits}\nsecurity: {differential_privacy: {target_epsilon: 3, declared_size: 1500}}\n"


def test_a_budget_and_a_size_are_enough(tmp_path):
    """No hyper-parameter is given: noise meets the budget, and the model is good (92.5% to 94.5% over 20 keys)."""
    (tmp_path / "train.yaml").write_text(BUDGET)
    checked = json.loads(discreet("check", "train.yaml", "--json", cwd=tmp_path).stdout)
    assert checked["planned_steps"] == 1000 and checked["noise_multiplier"] > 1
    run = json.loads(discreet("train", "train.yaml", "--out", "run", "--json", "--insecure-seed", "3", cwd=tmp_path).stdout)
    assert 2.99 < checked["epsilon"]["upper"] <= 3 and run["accuracy"] > 0.9


def test_a_run_continues_with_the_defaults_with_which_it_started(tmp_path):
    """Also if they were others, as in an earlier version; what a file gives must agree."""
    (tmp_path / "train.yaml").write_text(BUDGET)
    earlier = ["optimizer.rate=0.1", "target_steps=20", "mode=fixed", "noise_multiplier=9", "optimizer.average=null"]
    settings = [word for key in earlier for word in ("--set", key)]
    first = json.loads(discreet("train", "train.yaml", "--out", "run", "--json", *settings, cwd=tmp_path).stdout)
    noise = ("--set", "noise_multiplier=9")  # this key has no other default
    again = json.loads(discreet("train", "train.yaml", "--out", "run", "--resume", "--json", *noise, cwd=tmp_path).stdout)
    assert (again["steps"], again["epsilon"]) == (first["steps"], first["epsilon"])
    other = discreet("train", "train.yaml", "--out", "run", "--resume", *noise, "--set", "optimizer.rate=1", cwd=tmp_path)
    assert other.returncode == 2 and "optimizer.rate" in other.stderr
