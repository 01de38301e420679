"""The first hour with a CSV file: from a raw file to predictions, counting commands and hand-written lines."""

import gzip
import json
import os
import pathlib
import random

import numpy as np
import pytest
import yaml
from command import discreet

ADULT = pathlib.Path(os.environ.get("DISCREET_DATA", "absent"), "adult")  # as benchmarks/tabular/sets.py finds it
ADULT_COLUMNS = ("age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
                 "capital-gain,capital-loss,hours-per-week,native-country,income")


class Hour:
    """Commands in one folder; each must succeed."""

    def __init__(self, folder):
        self.folder, self.commands = folder, 0

    def __call__(self, *args):
        self.commands += 1
        result = discreet(*args, cwd=self.folder)
        assert result.returncode == 0, result.stderr
        return result


def raw_people(rows, seed=1, dot=False):
    """As people have files: no header line, spaces after commas, ? for a missing value."""
    draw = random.Random(seed)
    lines = []
    for _ in range(rows):
        age, hours, country = draw.randint(18, 90), draw.randint(5, 80), draw.choice(["US", "MX", "FR"])
        rich = age / 90 + hours / 80 + draw.gauss(0, 0.2) > 1.1
        label = (">50K" if rich else "<=50K") + ("." if dot else "")
        lines.append(", ".join([str(age), str(hours), "?" if draw.random() < 0.05 else country, label]))
    return "\n".join(lines) + "\n\n"


INIT = ("--data", "people.csv", "--label", "income", "--header", "age,hours,country,income", "--classes", "<=50K,>50K")


@pytest.fixture
def people(tmp_path):
    (tmp_path / "people.csv").write_text(raw_people(2000))
    (tmp_path / "later.csv").write_text(raw_people(500, seed=2, dot=True))
    return tmp_path


def trained(folder, *args):
    result = discreet("train", "c.yaml", "--out", "run", "--insecure-seed", "7", "--json", *args, cwd=folder)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_four_commands_and_no_hand_written_line(people):
    hour = Hour(people)
    hour("init", "c.yaml", *INIT, "--test", "later.csv", "--records", "2100")
    text = (people / "c.yaml").read_text()
    assert len(text.splitlines()) <= 40 and max(map(len, text.splitlines())) <= 100
    assert yaml.safe_load(text)["data"]["map"] == {"income": {"<=50K.": "<=50K", ">50K.": ">50K"}}
    assert next(line for line in text.splitlines() if line[0] != "#") == "data:"
    hour("check", "c.yaml")
    out = json.loads(hour("train", "c.yaml", "--out", "run", "--json", "--insecure-seed", "7").stdout)
    predictions = hour("predict", "run", "later.csv").stdout.splitlines()
    assert (hour.commands, len(predictions)) == (4, 500)
    assert set(predictions) == {"<=50K", ">50K"}
    assert out["accuracy"] > out["confidential"]["held_out"]["majority_accuracy"] + 0.1
    assert out["epsilon"]["upper"] <= 3


@pytest.mark.skipif(not (ADULT / "adult-train.csv.gz").exists(), reason="set DISCREET_DATA to the folder of adult/")
def test_adult_as_it_is_published(tmp_path):
    for name in ("adult-train.csv", "adult-test.csv"):
        (tmp_path / name).write_bytes(gzip.decompress((ADULT / f"{name}.gz").read_bytes()))
    hour = Hour(tmp_path)
    hour("init", "c.yaml", "--data", "adult-train.csv", "--test", "adult-test.csv", "--label", "income", "--header",
         ADULT_COLUMNS, "--classes", "<=50K,>50K", "--records", "33000")
    assert len((tmp_path / "c.yaml").read_text().splitlines()) <= 40
    hour("check", "c.yaml")
    out = json.loads(hour("train", "c.yaml", "--out", "run", "--json", "--insecure-seed", "7").stdout)
    predictions = hour("predict", "run", "adult-test.csv").stdout.splitlines()
    assert (hour.commands, len(predictions)) == (4, 16281)
    assert out["accuracy"] > 0.83 and abs(out["confidential"]["held_out"]["majority_accuracy"] - 0.7638) < 1e-3
    assert not out["confidential"].get("warnings")


def test_the_starter_holds_no_value_of_a_record(tmp_path):
    """Two files with the same schema and other values give the same bytes, and no message names a value."""
    texts = set()
    for folder, (low, word) in {"a": (1, "qqq"), "b": (70000, "zzz")}.items():
        (tmp_path / folder).mkdir()
        rows = [f"{low + i},{word}{i % 9},{'yes' if i % 2 else 'no'}" for i in range(50 if low == 1 else 400)]
        (tmp_path / folder / "people.csv").write_text("\n".join(["size,name,bought", *rows]) + "\n")
        result = discreet("init", "c.yaml", "--data", "people.csv", "--label", "bought", "--classes", "no,yes",
                          cwd=tmp_path / folder)
        assert result.returncode == 0, result.stderr
        texts.add((tmp_path / folder / "c.yaml").read_text() + result.stdout + result.stderr)
    assert len(texts) == 1
    shown = discreet("init", "-", "--data", "people.csv", "--label", "bought", "--classes", "no,yes", "--words",
                     cwd=tmp_path / "a")
    assert "qqq" not in shown.stdout
    assert "confidential" in shown.stderr and '"qqq0", "qqq1"' in shown.stderr


def test_init_names_the_way_out(people):
    def refused(*args):
        result = discreet("init", "c.yaml", *args, cwd=people)
        assert result.returncode == 2 and not (people / "c.yaml").exists()
        return result.stderr

    data = ("--data", "people.csv")
    assert "has no header line" in refused(*data, "--label", "income") and "--header" in refused(*data, "--label", "x")
    header = ("--header", "age,hours,country,income")
    assert "--classes '<=50K,>50K'" in refused(*data, *header, "--label", "income")
    assert "--label-bounds LOWER,UPPER" in refused(*data, *header, "--label", "age")
    assert "did you mean income?" in refused(*data, *header, "--label", "incom")
    assert "needs --label" in refused(*data, *header)
    assert "found 4 fields; the header has 3" in refused(*data, "--header", "a,b,c", "--label", "a")
    assert "--label needs --data" in refused("--label", "income")
    result = discreet("init", "c.yaml", *INIT, cwd=people)
    assert "declared_size 100000 is a placeholder" in result.stderr and "PLACEHOLDER" in (people / "c.yaml").read_text()
    checked = json.loads(discreet("check", "c.yaml", "--json", cwd=people).stdout)
    assert "declared_size is 100000, more than twice the" in checked["confidential"]["warnings"][0]
    assert "confidential" in discreet("check", "c.yaml", cwd=people).stdout


def write_config(folder, **keys):
    data = {"format": "csv", "train": "people.csv", "header": ["age", "hours", "country", "income"], "label": "income",
            "classes": ["<=50K", ">50K"], "trim": True, "missing": ["?"], "numeric": {"age": [0, 120], "hours": [0, 100]},
            "categorical": {"country": ["US", "MX", "FR"]}, "holdout": 0.25} | keys.pop("data", {})
    privacy = {"target_epsilon": 30, "declared_size": 2000, "effective_batch_size": 200, "target_steps": 30,
               "noise_multiplier": 1, "accountant": "rdp"} | keys.pop("privacy", {})
    (folder / "c.yaml").write_text(json.dumps({"data": data, "optimizer": {"rate": 1},
                                               "security": {"differential_privacy": privacy}} | keys))


def test_predictions_of_a_raw_file_are_those_of_the_clean_one(people):
    write_config(people)
    trained(people)
    raw = (people / "people.csv").read_text()
    clean = "\n".join(["age,hours,country,income", *raw.replace(", ", ",").split()]) + "\n"
    (people / "clean.csv").write_text(clean)
    answers = [discreet("predict", "run", name, cwd=people).stdout for name in ("people.csv", "clean.csv")]
    assert answers[0] == answers[1] and answers[0].count("\n") == 2000


@pytest.mark.parametrize("change, said", [
    ({"header": []}, "name its 4 columns in data.header"),
    ({"trim": False}, "set data.trim: true"),
    ({"missing": []}, "list it in data.missing"),
    ({"classes": ["a", "b"]}, "people.csv:1: column income: '>50K' is not one of the declared classes; add it to"),
    ({"map": {"contry": {"a": "b"}}}, "data.map names contry, a column that is not read"),
    ({"hashed": ["age"]}, "data.hashed names age, which is also declared elsewhere"),
    ({"header": ["a", "a"]}, "data.header names a column twice"),
])
def test_errors_of_the_reader_name_the_key_to_set(people, change, said):
    write_config(people, data=change)
    result = discreet("check", "c.yaml", cwd=people)
    assert result.returncode == 2 and said in result.stderr and result.stderr.count("\n") == 1


def test_skipped_rows_are_recorded_replayed_and_confidential(people):
    lines = (people / "people.csv").read_text().split("\n")
    lines[3:3] = ["old, 40, US, >50K", "30, 40, US"]
    (people / "people.csv").write_text("\n".join(lines))
    write_config(people)
    assert "people.csv:4: column age: 'old'" in discreet("train", "c.yaml", "--out", "run", cwd=people).stderr
    out = json.loads(discreet("train", "c.yaml", "--out", "run", "--on-bad-row", "skip", "--json", cwd=people).stdout)
    assert out["confidential"]["skipped_rows"] == 2
    assert yaml.safe_load((people / "run" / "config.yaml").read_text())["data"]["on_bad_row"] == "skip"
    assert discreet("replay", "run", cwd=people).returncode == 0
    # Without the option: the run knows.
    resumed = discreet("train", "c.yaml", "--out", "run", "--resume", "--json", cwd=people)
    assert resumed.returncode == 0, resumed.stderr
    assert "2 rows of the data could not be read" in (people / "run" / "report.html").read_text()
    assert discreet("report", "run", "--public", cwd=people).returncode == 0
    assert "could not be read" not in (people / "run" / "report-public.html").read_text()


def test_predictions_keep_their_rows(people):
    write_config(people)
    trained(people)
    (people / "new.csv").write_text("30, 40, US, >50K\nold, 40, US, >50K\n\n50, 60, FR, >50K\n1, 2\n")
    refused = discreet("predict", "run", "new.csv", cwd=people)
    assert refused.returncode == 2 and "new.csv:2" in refused.stderr
    result = discreet("predict", "run", "new.csv", "--on-bad-row", "skip", cwd=people)
    rows = result.stdout.split("\n")
    assert [bool(row) for row in rows] == [True, False, True, False, False] and "2 rows could not be read" in result.stderr
    out = json.loads(discreet("predict", "run", "new.csv", "--on-bad-row", "skip", "--json", cwd=people).stdout)
    assert [p or "" for p in out["predictions"]] == rows[:4] and out["skipped"] == 2


def test_held_out_metrics_are_those_of_the_predictions(people):
    (people / "later.csv").write_text(raw_people(500, seed=2))
    write_config(people, data={"holdout": 0, "test": "later.csv"})
    out = trained(people)
    truth = np.array([line.split(", ")[-1] for line in (people / "later.csv").read_text().split("\n") if line])
    said = np.array(discreet("predict", "run", "later.csv", cwd=people).stdout.split())
    held_out = out["confidential"]["held_out"]
    assert out["accuracy"] == np.mean(said == truth)
    names, counts = np.unique(truth, return_counts=True)
    assert held_out["majority_accuracy"] == counts.max() / 500 and held_out["majority_class"] == names[counts.argmax()]
    for own in held_out["classes"]:
        assert own["recall"] == np.mean(said[truth == own["class"]] == own["class"])
        assert own["precision"] == np.mean(truth[said == own["class"]] == own["class"])
    text = discreet("train", "c.yaml", "--out", "text", "--insecure-seed", "7", cwd=people).stdout
    assert f"accuracy   {out['accuracy']:.1%} ({counts.max() / 500:.1%} for always '{names[counts.argmax()]}')" in text
    assert "class      '>50K': recall" in text
    page = (people / "run" / "report.html").read_text()
    assert "On held-out records" in page and "Recall" in page
    discreet("report", "run", "--public", cwd=people)
    assert "Recall" not in (people / "run" / "report-public.html").read_text()


def test_errors_of_regression_are_in_the_unit_of_the_label(people):
    draw = np.random.default_rng(3)
    x = draw.uniform(0, 100, 900)
    price = 5 * x + draw.normal(0, 20, 900)
    (people / "prices.csv").write_text("".join(f"{a},{b}\n" for a, b in zip(x, price)))
    (people / "test.csv").write_text("".join(f"{a},{b}\n" for a, b in zip(x[:200], price[:200])))
    write_config(people, data={"train": "prices.csv", "test": "test.csv", "holdout": 0, "header": ["x", "price"],
                               "label": "price", "classes": [], "label_bounds": [-200, 700], "numeric": {"x": [0, 100]},
                               "categorical": {}}, model={"kind": "linear"})
    held_out = trained(people)["confidential"]["held_out"]
    said = np.array(discreet("predict", "run", "test.csv", cwd=people).stdout.split(), dtype=float)
    error = np.mean((said - price[:200]) ** 2)
    assert np.isclose(held_out["rmse"], error ** 0.5, rtol=1e-4)
    assert np.isclose(held_out["r2"], 1 - error / np.var(price[:200]), rtol=1e-4)


def test_warnings_follow_from_public_values(people):
    write_config(people, privacy={"target_delta": 1e-3, "noise_multiplier": 5000})
    notes = json.loads(discreet("check", "c.yaml", "--json", cwd=people).stdout)["notes"]
    assert any("target_delta 0.001 is at least 1 / declared_size" in note and "such as 1e-05" in note for note in notes)
    assert any("times the strongest possible signal" in note for note in notes)
    assert set(notes) <= set(trained(people)["notes"])
    write_config(people)
    notes = json.loads(discreet("check", "c.yaml", "--json", cwd=people).stdout)["notes"]
    assert not any("signal" in note or "target_delta" in note for note in notes)


def test_a_loss_that_grows_is_said(people):
    write_config(people, optimizer={"rate": 5000})
    out = trained(people)
    assert any("the run diverges; lower optimizer.rate" in warning for warning in out["confidential"]["warnings"])
    assert all("diverges" not in note for note in out["notes"])
