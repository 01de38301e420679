"""discreet init and discreet check, against PyYAML, jsonschema and cbor2 as oracles."""

import hashlib
import json
import pathlib
import re
import time

import cbor2
import jsonschema
import pytest
import yaml
from command import discreet

PRESETS = ["llm_flash", "peft_max_utility", "regulated_fair", "frontier_trillion"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
MINIMAL = {"target_epsilon": 3, "declared_size": 60000, "effective_batch_size": 600, "noise_multiplier": 1}


def schema():
    return json.loads(discreet("check", "--schema").stdout)


def write(path, **keys):
    path.write_text(json.dumps({"security": {"differential_privacy": MINIMAL | keys}}))
    return str(path)


def check_json(*args, **kwargs):
    result = discreet("check", *args, "--json", **kwargs)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


@pytest.fixture
def config(tmp_path):
    return lambda **keys: write(tmp_path / "c.yaml", **keys)


def starter(*args):
    result = discreet("init", "-", *args)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.parametrize("every", [[], ["--all"]], ids=str)
@pytest.mark.parametrize("preset", [[], *(["--preset", name] for name in PRESETS)], ids=str)
def test_starter_is_accepted_and_fits_a_hundred_columns(preset, every):
    text = starter(*preset, *every)
    assert every or len(text.splitlines()) <= 25
    assert max(map(len, text.splitlines())) <= 100
    assert discreet("check", "-", input=text).returncode == 0
    jsonschema.validate(yaml.safe_load(text), schema(), jsonschema.Draft202012Validator)


def test_starter_shows_every_key_of_the_schema():
    def leaves(node, path=""):
        for name, below in node["properties"].items():
            yield from leaves(below, f"{path}{name}.") if "properties" in below else [path + name]

    uncommented = re.sub(r"^( *)#(?! )", r"\1", starter("--all"), flags=re.M)
    tree = yaml.safe_load(uncommented)
    for path in leaves(schema()):
        at = tree
        for name in path.split("."):
            if name in ("extends", "mechanism"):
                break
            assert name in at, path
            at = at[name]
    jsonschema.validate(tree, schema(), jsonschema.Draft202012Validator)


def test_every_key_shows_what_train_resolves():
    """The template states the size of the embedded digits, and the default of 'train' for records that are not finite."""
    privacy = yaml.safe_load(starter("--all"))["security"]["differential_privacy"]
    assert (privacy["declared_size"], privacy["nonfinite"]) == (1437, "zero")
    resolved = yaml.safe_load(discreet("check", "-", "--resolved", input=starter()).stdout)
    assert resolved["security"]["differential_privacy"]["nonfinite"] == "zero"


def test_init_never_overwrites_unless_forced(tmp_path):
    assert discreet("init", cwd=tmp_path).returncode == 0
    file = tmp_path / "discreet.yaml"
    file.write_text("mine")
    result = discreet("init", cwd=tmp_path)
    assert (result.returncode, file.read_text()) == (2, "mine")
    assert "--force" in result.stderr
    assert discreet("init", "--force", cwd=tmp_path).returncode == 0
    assert discreet("check", "discreet.yaml", cwd=tmp_path).returncode == 0
    result = discreet("init", "--preset", "llm_flsh", "x.yaml", cwd=tmp_path)
    assert result.returncode == 2 and "did you mean 'llm_flash'?" in result.stderr
    assert not (tmp_path / "x.yaml").exists()
    result = discreet("init", str(tmp_path / "absent" / "x.yaml"))
    assert result.returncode == 3 and "there is no directory" in result.stderr
    for name in (str(tmp_path), ""):
        for force in ([], ["--force"]):
            result = discreet("init", name, *force)
            assert result.returncode == 2 and "name a file" in result.stderr


def test_init_leaves_the_old_file_when_the_new_one_cannot_be_written(tmp_path):
    result = discreet("init", "--force", "/proc/self/x.yaml")
    assert result.returncode == 3 and "/proc/self/x.yaml" in result.stderr
    file = tmp_path / "mine.yaml"
    file.write_text("mine")
    kept = tmp_path / "link.yaml"
    kept.hardlink_to(file)
    assert discreet("init", "--force", str(file)).returncode == 0
    assert kept.read_text() == "mine"  # a new file took the name; the old one was not cut short


def test_schema_is_valid_and_refuses_what_check_refuses(config):
    document = schema()
    jsonschema.Draft202012Validator.check_schema(document)
    validator = jsonschema.Draft202012Validator(document)
    good = [{}, {"noise_multiplier": 2}, {"clipping": {"norm": "adaptive"}}, {"sigma_map": None},
            {"modules": {"a": {"public": True}}}, {"public_modules": ["a"]}, {"target_steps": 1e3},
            {"phases": {"warmup": {"steps": 3, "noise_multiplier": 2}}}, {"seed": 2**64 - 1},
            {"ghost_bound_hash": "a" * 64}, {"clipping": None}, {"parallelism": {"type": "3d"}},
            {"public_modules": [1.5]}]  # a bare word of YAML is a name here
    bad = [{"noise_multiplier": -1}, {"noise_multiplier": "1"}, {"target_delta": 1},
           {"target_delta": 0}, {"clipping": {"norm": "adaptve"}}, {"clipping": {"strategy": "x"}},
           {"nois_multiplier": 1}, {"target_steps": 0}, {"target_steps": 1.5}, {"secure": "yes"},
           {"secure": 1}, {"public_modules": [[1]]}, {"clip_norm_map": {"a": 0}}, {"sigma_map": [1]},
           {"modules": {"a": {"publc": True}}}, {"ghost_bound_hash": "A" * 64}, {"debug": None},
           {"safety_budget_reserve": 1}, {"accounting_adjustment_factor": 0.5}, {"seed": -1},
           {"phases": {"cooldown": {"until_step": 3}}}, {"extends": "nothing"}]
    for keys in good:
        file = config(**keys)
        assert validator.is_valid(json.loads(pathlib.Path(file).read_text())), keys
        assert discreet("check", file, "--no-data").returncode == 0, keys
    for keys in bad:
        file = config(**keys)
        result = discreet("check", file)
        assert result.returncode == 2, keys
        assert result.stderr.startswith("error: INVALID_DP_CONFIG: ") and file in result.stderr
        assert not validator.is_valid(json.loads(pathlib.Path(file).read_text())), keys


def test_schema_wants_a_budget_only_when_enabled():
    validator = jsonschema.Draft202012Validator(schema())
    for keys, valid in [({}, False), ({"enabled": False}, True), ({"enabled": True}, False)]:
        document = {"security": {"differential_privacy": keys}}
        assert validator.is_valid(document) == valid
        assert (discreet("check", "-", "--no-data", input=json.dumps(document)).returncode == 0) == valid


def settings_of(tree, node, path=""):
    """The leaves of a resolved configuration by path, as the schema cuts them."""
    for name, below in node["properties"].items():
        if "properties" in below:
            yield from settings_of(tree.get(name, {}), below, f"{path}{name}.")
        elif name in tree:
            yield path + name, tree[name]


@pytest.mark.parametrize("keys", [
    {}, {"noise_multiplier": 0.3, "target_delta": 1e-7, "public_modules": ["b", "a"]},
    {"clipping": {"strategy": "per_group", "norm": "adaptive"}, "clip_norm_map": {"ü": 1, "a.b": 2}},
    {"extends": "regulated_fair", "seed": 2**64 - 1}])
def test_hash_is_that_of_the_resolved_keys_in_canonical_cbor(config, keys):
    file = config(**keys)
    resolved = discreet("check", file, "--resolved").stdout
    leaves = dict(settings_of(yaml.safe_load(resolved), schema()))
    assert len(leaves) > 60
    oracle = hashlib.sha256(cbor2.dumps(["discreet.config.v1", leaves], canonical=True)).hexdigest()
    assert check_json(file, "--no-data")["hash"] == oracle
    assert check_json("-", "--no-data", input=resolved)["hash"] == oracle
    jsonschema.validate(yaml.safe_load(resolved), schema(), jsonschema.Draft202012Validator)


def test_planned_epsilon_is_that_of_account_and_carries_its_adjacency(config):
    file = config(target_steps=1000, noise_multiplier=1.1)
    out = check_json(file)
    account = json.loads(discreet("account", "--sampling-rate=0.01", "--noise-multiplier=1.1",
                                  "--steps=1000", "--delta=1e-5", "--json").stdout)
    # The run charges the rounding of its sums, too.
    assert account["epsilon"]["upper"] <= out["epsilon"]["upper"] <= account["epsilon"]["upper"] * (1 + 1e-5)
    assert out["adjacency"] == "add_remove" and out["steps"] == 1000 and out["ended"] == "completed"
    text = discreet("check", file).stdout
    assert text.startswith("OK\n") and out["hash"] in text
    assert all("add_remove" in line for line in text.splitlines() if "epsilon" in line)
    assert out["epsilon"]["upper"] <= float(re.search(r"epsilon ≤ (\S+)", text)[1])


def test_planned_epsilon_above_the_target_is_said(config):
    out = check_json(config(target_steps=100000))
    assert out["epsilon"]["upper"] <= 3 and out["ended"] == "budget_reached" and 0 < out["steps"] < 100000
    assert any(f"after {out['steps']} steps of 100000" in note for note in out["notes"])


def test_set_overrides_and_stamps_are_shown(config):
    file = config()
    out = check_json(file, "--set", "secure=false", "--set", "clipping.norm=0.5")
    assert len(out["not_private"]) == 1 and "secure" in out["not_private"][0]
    assert "not_private" in discreet("check", file, "--set", "secure=false").stdout
    assert check_json(file)["hash"] != out["hash"]
    result = discreet("check", file, "--set", "clipping.stratgy=ghost")
    assert result.returncode == 2 and "did you mean clipping.strategy?" in result.stderr
    assert check_json(file, "--set", "clipping.norm = 0.5") == check_json(file, "--set",
                                                                          "clipping.norm=0.5")
    assert "--reference" in discreet("check", file, "--set", "a.b.c=1").stderr
    assert discreet("check", file, "--schema").returncode == 2


def test_resolved_without_declared_size_says_zero_out(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("security: {differential_privacy: {enabled: false}}")
    out = check_json(str(file), "--no-data")
    assert out["adjacency"] == "zero_out" and "zero_out" in out["notes"][0]


@pytest.mark.parametrize("text, named", [
    ("", "empty"), ("a: [", "c.yaml:1"), ("\xff", "empty"), ("security: {\n", "not valid YAML"),
    ("security: &a {}\nrun: *a", "anchor"), ("run: {compute_dtype: float16}", "float32"),
    ("dataset: {}", "did you mean data?"), ("a: 1\na: 2", "c.yaml:2: the key a is already given on line 1"),
])
def test_bad_files_are_one_sentence(tmp_path, text, named):
    file = tmp_path / "c.yaml"
    file.write_bytes(text.encode("latin-1"))
    result = discreet("check", "c.yaml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: INVALID_DP_CONFIG: c.yaml")
    assert result.stderr.count("\n") == 1
    if text != "\xff":
        assert named in result.stderr


def test_files_that_cannot_be_read_are_refused(tmp_path):
    for path in (tmp_path / "absent.yaml", tmp_path):
        result = discreet("check", str(path))
        assert result.returncode == 2 and str(path) in result.stderr
    assert discreet("check").returncode == 2
    assert discreet("check", "-", input="x" * (2 << 20)).returncode == 2


def test_reference_page_is_that_of_the_table():
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    begin, end = "<!-- discreet check --reference -->\n", "<!-- end -->"
    assert page.split(begin)[1].split(end)[0] == discreet("check", "--reference").stdout


CSV = {"format": "csv", "train": "adult.csv", "label": "pay", "classes": ["low", "high"],
       "numeric": {"AGE": [0, 120]}, "categorical": {"sex": ["f", "m", "*"]}}


def write_sections(path, privacy=None, **sections):
    rows = [f"{20 + i % 60},{'fmx'[i % 3]},{i % 7},{'low' if i % 2 else 'high'}" for i in range(200)]
    (path.parent / "adult.csv").write_text("\n".join(["AGE,sex,hours,pay"] + rows) + "\n")
    privacy = MINIMAL | {"target_steps": 100} | (privacy or {})
    path.write_text(json.dumps({"security": {"differential_privacy": privacy}} | sections))
    return str(path)


def test_check_says_what_data_model_and_optimizer_resolve_to(tmp_path):
    file = write_sections(tmp_path / "c.yaml", data=CSV, model={"kind": "mlp", "hidden": [512, 256]},
                          optimizer={"rate": 2, "momentum": 0.9})
    text = discreet("check", file).stdout
    assert f"data           csv of {tmp_path}/adult.csv: 1 numeric, 1 categorical, label pay\n" in text
    assert "model          mlp of 512-256, relu\n" in text
    assert "optimizer      sgd at rate 2, constant, momentum 0.9, average 0.9\n" in text
    resolved = discreet("check", file, "--resolved").stdout
    assert yaml.safe_load(resolved)["data"]["numeric"] == {"AGE": [0, 120]}
    jsonschema.validate(yaml.safe_load(resolved), schema(), jsonschema.Draft202012Validator)
    assert check_json("-", input=resolved)["hash"] == check_json(file)["hash"]
    assert check_json(file, "--set", "model.hidden=[512, 257]")["hash"] != check_json(file)["hash"]


def test_private_bounds_are_in_the_planned_epsilon(tmp_path):
    declared = check_json(write_sections(tmp_path / "a.yaml", data=CSV))
    released = write_sections(tmp_path / "b.yaml", data=CSV | {"private_bounds": ["hours"]})
    first, better = check_json(released), check_json(released, "--set", "data.private_bounds_noise=40")
    assert first["epsilon"]["upper"] > better["epsilon"]["upper"] > declared["epsilon"]["upper"]
    assert "bounds of hours released at noise 10" in first["data"]


def test_epochs_are_steps(tmp_path):
    by_epochs = write_sections(tmp_path / "a.yaml", {"target_steps": None}, run={"epochs": 3})
    by_steps = write_sections(tmp_path / "b.yaml", {"target_steps": 300})
    assert check_json(by_epochs)["hash"] == check_json(by_steps)["hash"]
    assert check_json(by_epochs)["steps"] == 300
    result = discreet("check", by_steps, "--set", "run.epochs=2")
    assert result.returncode == 2
    assert "run.epochs is 2, which are 200 steps" in result.stderr and "target_steps is 300" in result.stderr


@pytest.mark.parametrize("setting, named", [
    ("data.label=null", "data.label is missing"),
    ("data.train=null", "data.train is missing"),
    ("data.classes=[]", "label_bounds: [lower, upper]"),
    ("data.format=digits", "data.train has no effect with data.format: digits"),
    ("data.format=cvs", "did you mean csv?"),
    ("data.numeric={AGE: auto}", "private_bounds"),
    ("data.numeric={AGE: [1, 1]}", "the second larger"),
    ("data.private_bounds=[AGE]", "keep one of them"),
    ("data.separator=tab", "it must be one character"),
    ("model.hiden=[1]", "did you mean model.hidden?"),
    ("optimizer.momentum=1", "[0, 1)"),
])
def test_sections_that_do_not_fit_are_refused(tmp_path, setting, named):
    file = write_sections(tmp_path / "c.yaml", data=CSV)
    assert discreet("check", file).returncode == 0
    result = discreet("check", file, "--set", setting)
    assert (result.returncode, result.stdout) == (2, "")
    assert named in result.stderr and result.stderr.count("\n") == 1


def test_normalising_by_the_data_is_refused_with_the_reason(tmp_path):
    file = write_sections(tmp_path / "c.yaml", data=CSV | {"normalize": "mean"})
    result = discreet("check", file)
    assert result.returncode == 2 and "an unaccounted release" in result.stderr


def test_check_opens_the_data_and_names_near_misses(tmp_path):
    file = write_sections(tmp_path / "c.yaml", data=CSV)
    for setting, named in [("data.train=absent.csv", "absent.csv"), ("data.numeric={AGEE: [0, 120]}", "did you mean AGE?"),
                           ("data.label=pai", "did you mean pay?"), ("data.classes=[low, hgh]", "adult.csv:2"),
                           ("declared_size=199", "199"), ("model.features=scattering", "image"),
                           ("target_delta=1e-37", "below the sampler error"), ("groups={a: {public: true}}", "a"),
                           ("sigma_map={layer9: 1}", "sigma_map"),
                           ("target_epsilon=0.001", "PRIVACY_BUDGET_EXCEEDED")]:
        checked = discreet("check", file, "--set", setting)
        trained = discreet("train", file, "--set", setting, "--out", str(tmp_path / "run"))
        assert named in checked.stderr, (setting, checked.stderr)
        assert (checked.returncode, checked.stderr) == (trained.returncode, trained.stderr), setting
        assert checked.returncode != 0 and not (tmp_path / "run").exists()


def test_what_ghost_clipping_costs_is_said(config):
    keys = {"clipping": {"strategy": "ghost"}, "target_steps": 1500, "declared_size": 60000, "effective_batch_size": 4096,
            "target_epsilon": 60}
    out = check_json(config(**keys))
    note = next(note for note in out["notes"] if "rounding" in note)
    assert "ghost clipping" in note and "clipping.ghost: false" in note
    exact = check_json(config(**keys | {"clipping": {"strategy": "per_sample"}}))
    assert out["epsilon"]["upper"] > 1.02 * exact["epsilon"]["upper"]
    assert not any("rounding" in note for note in exact["notes"])


def test_a_long_run_is_checked_at_once(config):
    begin = time.monotonic()
    check_json(config(target_steps=100000, target_epsilon=50))
    assert time.monotonic() - begin < 20  # two seconds where nothing else runs
