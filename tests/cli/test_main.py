"""The promises every command keeps: help, version, error form, exit statuses."""

import json
import os
import re
import resource
import subprocess

import pytest
from command import discreet, refusal

TABLE = json.loads(discreet("--help", "--json").stdout)


def walk(command):
    yield command
    for inner in command["commands"]:
        yield from walk(inner)


COMMANDS = list(walk(TABLE))[1:]
LEAVES = [command for command in COMMANDS if not command["commands"]]
INPUTS = [(command, option["name"]) for command in LEAVES for option in command["options"]
          if option.get("names") in ("input_file", "input_folder")]


def words(command):
    return command["command"].split()[1:]


def named(command):
    return command["command"]


def test_help_lists_every_command_in_its_group_and_the_exit_statuses():
    result = discreet("--help")
    assert result.returncode == 0
    groups = dict(re.findall(r"^(\w+):\n((?:  .*\n)+)", result.stdout, re.M))
    assert list(groups)[:5] == ["Train", "Plan", "Contribute", "Audit", "Serve"]
    for command in TABLE["commands"]:
        assert re.search(rf"^  {words(command)[0]} +{re.escape(command['summary'])}$", groups[command["group"]], re.M)
    assert "Exit status: 0 done" in result.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=named)
def test_every_command_has_help_with_an_example(command):
    result = discreet(*words(command), "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{command['summary']}\n\nUsage: {command['command']}")
    assert f"{command['command']}" in result.stdout.split("\nExamples:\n")[1]
    assert max(map(len, result.stdout.split("\nExamples:\n")[0].splitlines())) <= 100
    assert discreet("help", *words(command)).stdout == result.stdout


@pytest.mark.parametrize("command", LEAVES, ids=named)
def test_examples_use_options_that_exist(command):
    known = {option["name"] for option in command["options"]}
    lines = command["example"].replace("\\\n", "").splitlines()
    own = [line for line in lines if line.strip().startswith(command["command"] + " ")]
    for option in re.findall(r" (--[\w-]+)", " ".join(own)):
        assert option in known, option


def test_without_arguments_it_prints_help_and_is_not_a_yes():
    for command in [TABLE, *(c for c in COMMANDS if c["commands"])]:
        result = discreet(*words(command))
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == discreet(*words(command), "--help").stdout


def test_version():
    result = discreet("--version")
    assert (result.returncode, result.stdout.split()[0]) == (0, "discreet")


@pytest.mark.parametrize("args, sentence", [
    (["acount"], "unknown command 'acount'; did you mean 'account'?"),
    (["nonsense"], "unknown command 'nonsense'; see 'discreet --help'"),
    (["ledger", "verfy"], "unknown command 'verfy'; did you mean 'verify'?"),
    (["selfcheck", "--jason"], "unknown option '--jason'; did you mean '--json'?"),
    (["account", "--noise", "1"], "unknown option '--noise'; did you mean '--noise-multiplier'?"),
    (["account", "-x"], "unknown option '-x'; see 'discreet account --help'"),
    (["account", "--accountant", "pdl"], "--accountant must be one of pld, rdp, moments, gdp, f_dp; found 'pdl'; "
                                         "did you mean 'pld'?"),
    (["account", "--delta"], "--delta needs a value: --delta DELTA; see 'discreet account --help'"),
    (["account", "--delta", "--json"], "--delta needs a value: --delta DELTA; see 'discreet account --help'"),
    (["account", "--delta", "1", "--delta", "2"], "--delta is given twice; give it once; see 'discreet account --help'"),
    (["account", "--verify=yes"], "--verify takes no value; see 'discreet account --help'"),
    (["selfcheck", "more"], "unexpected argument 'more'; see 'discreet selfcheck --help'"),
    (["trace"], "RUN is missing: Directory of the run; see 'discreet trace --help'"),
    (["trace", ".", "--json", "--csv"], "--csv and --json exclude each other; give one of them; "
                                        "see 'discreet trace --help'"),
    (["keygen", "name", "--revoke", "00"], "--revoke and NAME exclude each other; give one of them; "
                                           "see 'discreet keygen --help'"),
])
def test_bad_usage_is_one_sentence_with_a_remedy(args, sentence):
    result = discreet(*args)
    assert (result.returncode, result.stdout) == (2, "")
    if "--json" in args:
        assert json.loads(result.stderr) == {"error": {"code": "INVALID_USAGE", "message": sentence, "status": 2}}
    else:
        assert result.stderr == f"error: INVALID_USAGE: {sentence}\n"


def test_arguments_may_start_with_a_dash_after_two_dashes():
    assert "cannot open '-x'" in refusal("trace", "--", "-x")
    assert "cannot open '--json'" in refusal("trace", "--", "--json")


def test_the_table_excludes_options_that_exist():
    for command in LEAVES:
        known = {option["name"] for option in command["options"]}
        for option in command["options"]:
            assert set(option.get("excludes", [])) <= known


def invocation(command, name, path, tmp_path):
    """The command with `path` for one option, and what else it requires."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir(exist_ok=True)
    for inside in ("config.yaml", "trace.jsonl", "model.db"):
        (tmp_path / "folder" / inside).write_text("")
    values = {"input_file": tmp_path / "file", "input_folder": tmp_path / "folder", "output_file": tmp_path / "out",
              "output_folder": tmp_path / "out"}
    names = [option["name"] for option in command["options"]]
    out = words(command)
    for option in command["options"]:
        # An argument is given only after those before it.
        before = not option["name"].startswith("--") and not name.startswith("--") \
            and names.index(option["name"]) < names.index(name)
        if option["name"] == name or option.get("required") or before:
            value = path if option["name"] == name else values.get(option.get("names"), option.get("choices", ["1"])[0])
            out += [str(value)] if not option["name"].startswith("--") else [option["name"], str(value)]
    return out


@pytest.mark.parametrize("command, name", INPUTS, ids=[f"{c['command']} {name}" for c, name in INPUTS])
def test_a_missing_file_is_one_text_and_one_status_in_every_command(command, name, tmp_path):
    absent = tmp_path / "absent"
    args = invocation(command, name, absent, tmp_path)
    assert refusal(*args) == f"error: INVALID_INPUT: cannot open '{absent}': No such file or directory; check the path\n"
    option = next(option for option in command["options"] if option["name"] == name)
    wrong = tmp_path / ("folder" if option["names"] == "input_file" else "file")
    reason = "Is a directory; give a file" if option["names"] == "input_file" else "Not a directory; check the path"
    assert refusal(*invocation(command, name, wrong, tmp_path)) \
        == f"error: INVALID_INPUT: cannot open '{wrong}': {reason}\n"
    assert not (tmp_path / "out").exists()


def test_a_missing_file_that_another_file_names_has_the_same_text(tmp_path):
    missing = "No such file or directory; check the path\n"
    (tmp_path / "train.yaml").write_text(
        "data: {format: csv, train: absent.csv, label: y, classes: [a, b], numeric: {x: [0, 1]}}\nmodel: {kind: softmax}\n"
        "security: {differential_privacy: {target_epsilon: 8, target_delta: 1e-5, declared_size: 100,"
        " effective_batch_size: 10, target_steps: 10}}\n")
    for args in (["check", tmp_path / "train.yaml"], ["train", tmp_path / "train.yaml", "--out", tmp_path / "run"]):
        assert refusal(*args) == f"error: INVALID_INPUT: cannot open '{tmp_path / 'absent.csv'}': {missing}"
    discreet("keygen", str(tmp_path / "k"))
    absent = tmp_path / "absent"
    (tmp_path / "rows.csv").write_text(f"contributor,class,payload,clip_norm,noise_multiplier,occurrences,not_before,not_after,"
                                       f"corpus\na,b,{absent},1,1,1,2026-01-01,2027-01-01,c\n")
    for args in (["attest", "--key", tmp_path / "k.key", "--batch", tmp_path / "rows.csv", "--out", tmp_path / "o"],
                 ["withdraw", "--ledger", tmp_path / "rows.csv", "--key", tmp_path / "k.key", "--events", absent]):
        assert refusal(*args) == f"error: INVALID_INPUT: cannot open '{absent}': {missing}"
    (tmp_path / "run").mkdir(exist_ok=True)
    for command in ("predict", "release", "replay", "report"):
        more = {"predict": [tmp_path / "rows.csv"], "release": ["--key", tmp_path / "k.key"]}.get(command, [])
        assert refusal(command, tmp_path / "run", *more) \
            == f"error: INVALID_INPUT: '{tmp_path / 'run'}' is not a run: it has no config.yaml; give the folder named in --out\n"


def test_errors_are_json_with_json(tmp_path):
    for args, code in ((["account", "--json"], "INVALID_DP_CONFIG"), (["trace", str(tmp_path / "x"), "--json"], "INVALID_INPUT"),
                       (["nonsense", "--json"], "INVALID_USAGE"), (["account", "--dleta", "1", "--json"], "INVALID_USAGE")):
        result = discreet(*args)
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        error = json.loads(result.stderr)["error"]
        assert (error["code"], error["status"]) == (code, 2) and error["message"]


def test_full_disk_is_status_3():
    for args, start in ((["selfcheck"], "error: IO_ERROR: "), (["selfcheck", "--json"], '{"error":{"code":"IO_ERROR",')):
        with open("/dev/full", "w") as full:
            result = subprocess.run([os.environ["DISCREET"], *args], stdout=full, stderr=subprocess.PIPE, text=True)
        assert result.returncode == 3
        assert result.stderr.startswith(start)


def test_output_that_fails_midway_is_status_3():
    """More than stdio buffers: the write fails while the command prints, not at its end."""
    for args in (["--help", "--json"], ["operators", "--json"], ["completion", "bash"]):
        assert len(discreet(*args).stdout) > 4096
        with open("/dev/full", "w") as full:
            result = subprocess.run([os.environ["DISCREET"], *args], stdout=full, stderr=subprocess.PIPE, text=True)
        assert result.returncode == 3 and "the output could not be written" in result.stderr, result.stderr
        assert "INTERNAL" not in result.stderr


def test_a_limit_of_file_sizes_is_an_error_and_leaves_no_part(tmp_path):
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))

    result = discreet("keygen", "k", cwd=tmp_path, preexec_fn=limited)
    assert result.returncode == 3 and result.stderr.startswith("error: IO_ERROR: "), result
    assert not list(tmp_path.iterdir())


def test_withdrawals_that_are_all_rejected_are_listed(tmp_path):
    for args in (["unlearn", "init", "m", "--dimension", "2"], ["keygen", "stranger"]):
        assert discreet(*args, cwd=tmp_path).returncode == 0
    hashes = ["ab" * 32, "cd" * 32]
    for descriptor in hashes:
        assert discreet("withdraw", descriptor, "--origin", "discreet-unlearn/model", "--key", "stranger.key", "--events",
                        "events", cwd=tmp_path).returncode == 0
    before = (tmp_path / "m" / "ledger.db").read_bytes()
    record = ("withdraw", "--ledger", "m/ledger.db", "--key", "m/ledger.key", "--events", "events")
    text = discreet(*record, cwd=tmp_path)
    assert (text.returncode, text.stderr) == (1, "") and text.stdout.startswith("none of 2 withdrawals recorded")
    said = discreet(*record, "--json", cwd=tmp_path)
    rejected = json.loads(said.stdout)["rejected"]
    assert said.returncode == 1 and len(rejected) == 2
    for descriptor, why_not in zip(hashes, rejected):
        assert descriptor in why_not and why_not in text.stdout
    assert (tmp_path / "m" / "ledger.db").read_bytes() == before


def test_selfcheck_passes_and_speaks_json():
    result = discreet("selfcheck", "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["ok"] is True


def test_no_help_contains_a_control_character():
    for command in COMMANDS:
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", discreet(*words(command), "--help").stdout), named(command)
