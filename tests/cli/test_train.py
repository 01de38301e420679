"""discreet train, demo, replay, trace and predict; NumPy and safetensors are the oracles."""

import csv
import io
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
from command import discreet

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
