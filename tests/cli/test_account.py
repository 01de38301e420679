import json
import time
import xml.etree.ElementTree as xml

import pytest
from command import discreet

SETTING = {"--sampling-rate": "0.01", "--noise-multiplier": "1", "--steps": "1000",
           "--delta": "1e-5"}


def account(changes=(), *more):
    setting = {k: v for k, v in (SETTING | dict(changes)).items() if v is not None}
    return discreet("account", *[f"{k}={v}" for k, v in setting.items()], *more)


def test_json_has_the_documented_shape():
    result = account((), "--json")
    assert result.returncode == 0
    out = json.loads(result.stdout)
    assert out["epsilon"]["lower"] <= 1.828236666515 <= out["epsilon"]["upper"]
    assert (out["delta"], out["accountant"], out["sampling"], out["adjacency"]) == (
        1e-5, "pld", "poisson", "add_remove")
    assert (out["sampling_rate"], out["noise_multiplier"], out["steps"]) == (0.01, 1.0, 1000)


def test_text_rounds_epsilon_up_and_names_the_adjacency():
    result = account()
    assert result.stdout.startswith("epsilon ≤ 1.828237 at delta = 1e-05, add_remove\n")
    assert "adding or removing one record" in result.stdout


def test_epsilon_gives_delta_and_the_two_invert_each_other():
    epsilon = json.loads(account((), "--json").stdout)["epsilon"]["upper"]
    out = json.loads(account({"--delta": None, "--epsilon": repr(epsilon)}, "--json").stdout)
    assert out["delta"]["upper"] == pytest.approx(1e-5, rel=1e-8)


def test_a_group_is_certified_for_all_of_its_records_together():
    one = json.loads(account((), "--json").stdout)["epsilon"]["upper"]
    out = json.loads(account({"--group-size": "4"}, "--json").stdout)
    assert out["group_size"] == 4 and out["path"] == "transform"
    # A contour integral of exact moments (tests/golden/accounting/group_epsilon.py).
    assert 4 * one < out["epsilon"]["lower"] <= 8.8991878706855 <= out["epsilon"]["upper"] < 8.902
    back = json.loads(account({"--group-size": "4", "--delta": None,
                               "--epsilon": repr(out["epsilon"]["upper"])}, "--json").stdout)
    assert back["delta"]["lower"] <= 1e-5
    text = account({"--group-size": "4"}).stdout
    assert "add_remove, for groups of up to 4 records\n" in text
    assert "adding or removing up to 4 records together" in text


@pytest.mark.parametrize("changes, more, named", [
    ({"--group-size": "0"}, (), "0"), ({"--group-size": "2.5"}, (), "2.5"),
    ({"--group-size": "2"}, ("--accountant=rdp",), "rdp"),
    ({"--group-size": "2"}, ("--verify",), "--group-size"),
    ({"--group-size": "2", "--sampling": "fixed_size", "--sampling-rate": None, "--batch-size": "10",
      "--dataset-size": "1000"}, (), "fixed_size"),
])
def test_a_group_that_cannot_be_certified_is_rejected_by_name(changes, more, named):
    result = account(changes, *more)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: INVALID_DP_CONFIG: ") and named in result.stderr


def test_no_sampling_and_replace_one():
    none = {"--sampling-rate": None, "--sampling": "none", "--noise-multiplier": "4"}
    one = json.loads(account(none, "--json").stdout)
    two = json.loads(account(none | {"--noise-multiplier": "8", "--adjacency": "replace_one"},
                             "--json").stdout)
    assert two["epsilon"] == one["epsilon"], "replacing doubles the sensitivity"
    assert two["adjacency"] == "replace_one"


def samplings(setting):
    return discreet("account", *setting.split(), "--json")


@pytest.mark.parametrize("setting, lower, upper, adjacency", [
    # accounting.md and random-allocation.md reference values, rounded outward
    ("--sampling balls_and_bins --batches-per-epoch 235 --steps 14100 --noise-multiplier 1.1 "
     "--delta 1e-5", 2.33486, 2.33499, "add_remove"),
    ("--sampling fixed_size --batch-size 10 --dataset-size 1000 --steps 1000 --noise-multiplier 2 "
     "--delta 1e-5", 1.82823, 1.82824, "add_remove"),
    ("--sampling fixed_size --batch-size 10 --dataset-size 1000 --steps 1000 --noise-multiplier 2 "
     "--delta 1e-5 --adjacency replace_one", 1.828, 2.2, "replace_one"),
    ("--sampling shuffle --batches-per-epoch 10000 --steps 10000 --noise-multiplier .5 "
     "--delta 1e-6", 10.994, 10.998, "zero_out"),
    ("--sampling truncated_poisson --sampling-rate .01 --truncate 200 --dataset-size 10000 "
     "--steps 1000 --noise-multiplier 1 --delta 1e-5", 1.82823, 1.82824, "add_remove"),
    ("--batch-size 10 --dataset-size 1000 --steps 1000 --noise-multiplier 1 --delta 1e-5",
     1.82823, 1.82824, "add_remove"),
])
def test_every_sampler_has_its_own_accounting(setting, lower, upper, adjacency):
    out = json.loads(samplings(setting).stdout)
    assert out["epsilon"]["lower"] <= upper and lower <= out["epsilon"]["upper"]
    assert out["epsilon"]["upper"] <= upper * 1.002
    assert out["adjacency"] == adjacency


def test_other_accountants_are_never_below_pld_and_label_what_is_no_bound():
    pld = json.loads(account((), "--json").stdout)["epsilon"]["upper"]
    for name in ("rdp", "moments", "gdp", "f_dp"):
        out = json.loads(account({"--accountant": name}, "--json").stdout)
        assert out["epsilon"]["upper"] >= pld * (1 - 1e-9), name
        assert ("not_a_bound" in out) == (name == "gdp")


def test_paths_agree():
    assert account((), "--verify").returncode == 0


def test_schedule_is_the_same_as_its_steps(tmp_path):
    line = '{"noise_multiplier": 1, "sampling_rate": 0.01, "steps": 250}\n'
    schedule = tmp_path / "schedule.jsonl"
    schedule.write_text(line * 3 + "\n" + line)
    whole = json.loads(account((), "--json").stdout)
    parts = json.loads(discreet("account", "--schedule", str(schedule), "--delta", "1e-5",
                                "--json").stdout)
    assert parts["epsilon"] == whole["epsilon"]
    piped = discreet("account", "--schedule", "-", "--delta", "1e-5", "--json",
                     input=schedule.read_text())
    assert json.loads(piped.stdout)["epsilon"] == whole["epsilon"]


GOOD_LINE = '{"noise_multiplier": 1, "sampling_rate": 0.01, "steps": 1}'
BAD_LINES = [
    ("not json", "not JSON"), ("[1]", "expected a JSON object"), (GOOD_LINE[:-1], "not JSON"),
    (GOOD_LINE.replace("steps", "stesp"), "'stesp' is unknown"),
    ('{"noise_multiplier": 1, "sampling_rate": 0.01}', "'steps' is missing"),
    (GOOD_LINE.replace("1}", "1, \"steps\": 2}"), "stands twice"),
    (GOOD_LINE.replace("1}", "-3}"), "-3"), (GOOD_LINE.replace("1}", "1.5}"), "1.5"),
    (GOOD_LINE.replace("1}", '"many"}'), "many"), (GOOD_LINE.replace("0.01", "7"), "7"),
    (GOOD_LINE.replace("r\": 1", "r\": -2"), "-2"), (GOOD_LINE.replace("1}", "1e300}"), "1e+300"),
    (GOOD_LINE.replace("r\": 1", "r\": NaN"), "not JSON"),
]


@pytest.mark.parametrize("line, named", BAD_LINES)
def test_bad_line_deep_in_a_huge_schedule_is_named(tmp_path, line, named):
    schedule = tmp_path / "schedule.jsonl"
    schedule.write_text((GOOD_LINE + "\n") * 100_000 + line + "\n" + GOOD_LINE + "\n")
    result = discreet("account", "--schedule", str(schedule), "--delta", "1e-5")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: INVALID_DP_CONFIG: line 100001 of ")
    assert named in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_empty_schedule_is_refused(tmp_path, content):
    schedule = tmp_path / "schedule.jsonl"
    schedule.write_text(content)
    result = discreet("account", "--schedule", str(schedule), "--delta", "1e-5")
    assert result.returncode == 2 and "has no lines" in result.stderr


def test_absent_schedule_is_refused():
    result = discreet("account", "--schedule", "nowhere.jsonl", "--delta", "1e-5")
    assert result.returncode == 2 and "nowhere.jsonl" in result.stderr


BAD = [
    ({"--sampling-rate": "0"}, "0"), ({"--sampling-rate": "1.01"}, "1.01"),
    ({"--sampling-rate": "nan"}, "nan"), ({"--sampling-rate": "x"}, "x"),
    ({"--noise-multiplier": "0"}, "0"), ({"--noise-multiplier": "-1"}, "-1"),
    ({"--noise-multiplier": "inf"}, "inf"), ({"--noise-multiplier": "1e999"}, "1e999"),
    ({"--steps": "-1"}, "-1"), ({"--steps": "1.5"}, "1.5"), ({"--steps": "1e30"}, "1e30"),
    ({"--steps": "ten"}, "ten"), ({"--delta": "0"}, "0"), ({"--delta": "1"}, "1"),
    ({"--delta": "nan"}, "nan"), ({"--epsilon": "1"}, "either"), ({"--delta": None}, "either"),
    ({"--delta": None, "--epsilon": "-1"}, "-1"), ({"--adjacency": "both"}, "both"),
    ({"--sampling": "magic"}, "magic"), ({"--sampling": "none"}, "--sampling-rate"),
    ({"--accountant": "best"}, "best"), ({"--sampling": "fixed_size"}, "--sampling-rate"),
    ({"--sampling": "balls_and_bins", "--sampling-rate": None}, "--batches-per-epoch"),
    ({"--sampling": "balls_and_bins", "--sampling-rate": None, "--batches-per-epoch": "7"}, "1000"),
    ({"--sampling": "balls_and_bins", "--sampling-rate": None, "--batches-per-epoch": "10",
      "--accountant": "rdp"}, "balls_and_bins"),
    ({"--sampling": "shuffle", "--sampling-rate": None, "--batches-per-epoch": "10",
      "--adjacency": "add_remove"}, "add_remove"),
    ({"--sampling-rate": None}, "--sampling-rate"), ({"--adjacency": "replace_one"}, "replace_one"),
    ({"--noise-multiplier": None}, "--noise-multiplier"),
]


@pytest.mark.parametrize("changes, named", BAD, ids=[str(changes) for changes, _ in BAD])
def test_bad_input_is_one_sentence_naming_the_value(changes, named):
    result = account(changes)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(("error: INVALID_DP_CONFIG: ", "error: INVALID_USAGE: "))
    assert named in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("noise", ["0.1", "0.03", "0.01", "0.001"])
def test_hardly_any_noise_has_a_bound_that_is_too_large_to_be_of_use(noise):
    out = json.loads(account({"--noise-multiplier": noise}, "--json").stdout)
    mu = 1000 ** 0.5 / float(noise)  # as if every record were in every step
    assert 50 < out["epsilon"]["upper"] <= (mu * mu / 2 + 4.2648908 * mu) * (1 + 1e-9)


SIZES = ("--dataset-size", "60000", "--batch-size", "256", "--epochs", "2")


# Each beside the same run by rate and steps; 60000 / 256 batches, rounded up, are 235.
@pytest.mark.parametrize("sampling, sizes, steps", [
    ("poisson", SIZES, ("--sampling-rate", repr(256 / 60000), "--steps", "470")),
    ("none", ("--epochs", "7"), ("--steps", "7")),
    ("fixed_size", SIZES, ("--dataset-size", "60000", "--batch-size", "256", "--steps", "470")),
    ("balls_and_bins", SIZES, ("--batches-per-epoch", "235", "--steps", "470")),
    ("balls_and_bins", ("--batches-per-epoch", "235", "--epochs", "2"), ("--batches-per-epoch", "235", "--steps", "470")),
    ("shuffle", SIZES, ("--batches-per-epoch", "235", "--steps", "470")),
    ("truncated_poisson", (*SIZES, "--truncate", "320"),
     ("--sampling-rate", repr(256 / 60000), "--dataset-size", "60000", "--truncate", "320", "--steps", "470")),
])
def test_epochs_and_sizes_are_a_rate_and_steps(sampling, sizes, steps):
    given = ("account", "--sampling", sampling, "--noise-multiplier", "1.3", "--delta", "1e-5", "--json")
    by_epochs, by_steps = (json.loads(discreet(*given, *more).stdout) for more in (sizes, steps))
    assert by_epochs["epochs"] * by_epochs["steps_per_epoch"] == by_epochs["steps"] == by_steps["steps"]
    assert by_epochs["epsilon"] == by_steps["epsilon"] and "epochs" not in by_steps


def test_epochs_are_those_that_check_plans(tmp_path):
    (tmp_path / "train.yaml").write_text(
        "run: {epochs: 3}\nsecurity: {differential_privacy: {declared_size: 1000, effective_batch_size: 48, "
        "noise_multiplier: 2, target_epsilon: 20}}\ndata: {format: digits}\n")
    resolved = discreet("check", "--resolved", str(tmp_path / "train.yaml")).stdout
    out = json.loads(discreet("account", "--dataset-size", "1000", "--batch-size", "48", "--epochs", "3",
                              "--noise-multiplier", "2", "--delta", "1e-5", "--json").stdout)
    assert f"target_steps: {out['steps']}" in resolved and out["steps"] == 63
    assert f"sampling_rate: {out['sampling_rate']}" in resolved


@pytest.mark.parametrize("more, named", [
    (("--sampling-rate=.1", "--epochs=3"), "--epochs needs --dataset-size"), (("--steps=3", "--epochs=3"), "exclude"),
    (("--epochs=3", "--batch-size=5"), "needs --dataset-size"), (("--epochs=1e14", "--batch-size=1", "--dataset-size=1e3"), "2^53"),
    (("--epochs=3", "--batch-size=50", "--dataset-size=10"), "50"), (("--epochs=2.5", "--sampling=none"), "2.5"),
    (("--epochs=3", "--sampling=none", "--dataset-size=10"), "--dataset-size"), ((), "--epochs"),
    (("--epochs=3", "--sampling=balls_and_bins"), "--batches-per-epoch"),
    (("--epochs=3", "--sampling=truncated_poisson", "--sampling-rate=.1", "--dataset-size=9", "--truncate=3"), "--batch-size"),
])
def test_epochs_that_are_not_a_schedule_are_one_sentence(more, named):
    result = discreet("account", "--noise-multiplier=1", "--delta=1e-5", *more)
    assert (result.returncode, result.stdout) == (2, "") and named in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("setting, label", [
    (SIZES, "epochs"), (("--sampling-rate=.01", "--steps=100"), "steps"), (("--sampling=shuffle", *SIZES), "epochs"),
    (("--sampling=truncated_poisson", "--truncate=320", *SIZES), "epochs")], ids=str)
def test_plot_rises_to_the_answer(tmp_path, setting, label):
    out = json.loads(discreet("account", "--noise-multiplier=1.3", "--delta=1e-5", "--json", *setting,
                              "--plot", str(tmp_path / "a.svg")).stdout)
    svg = "{http://www.w3.org/2000/svg}"
    root = xml.parse(tmp_path / "a.svg").getroot()
    curve = [tuple(map(float, p.split(","))) for p in root.find(svg + "polyline").get("points").split()]
    assert all(a[0] < b[0] and a[1] >= b[1] for a, b in zip(curve, curve[1:])) and len(curve) > 2
    texts = [text.text for text in root.iter(svg + "text")]
    assert label in texts and f"ε ({out['adjacency']})" in texts


def test_only_an_epsilon_over_steps_is_drawn(tmp_path):
    for more in (("--epsilon=1",), ("--delta=1e-5", "--schedule=-")):
        steps = () if "--schedule=-" in more else ("--sampling-rate=.1", "--steps=3", "--noise-multiplier=1")
        result = discreet("account", *more, *steps, "--plot", str(tmp_path / "a.svg"), input=GOOD_LINE)
        assert result.returncode == 2 and "--plot" in result.stderr


def test_only_pld_verifies_by_independent_paths():
    result = account({"--accountant": "rdp"}, "--verify")
    assert result.returncode == 2 and result.stderr.startswith("error: INVALID_DP_CONFIG: --verify")


def test_answers_within_the_blink_of_an_eye():
    best = min(_seconds() for _ in range(5))
    assert best < 0.25, "benchmarks/accounting_bench.py has the real limit"


def _seconds():
    begin = time.monotonic()
    account()
    return time.monotonic() - begin
