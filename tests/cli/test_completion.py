"""Shell completion and manual pages come from the table of commands."""

import json
import re
import shutil
import subprocess

import pytest
from command import discreet

TABLE = json.loads(discreet("--help", "--json").stdout)


def bash(*line):
    script = discreet("completion", "bash").stdout + (
        f'COMP_WORDS=({" ".join(map(repr, line))}); COMP_CWORD={len(line) - 1}; _discreet; printf "%s\\n" "${{COMPREPLY[@]}}"')
    return subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout.split()


def fish(*line):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    script = discreet("completion", "fish").stdout + f"complete -C {repr(' '.join(line))}"
    out = subprocess.run(["fish", "--no-config", "-c", script], check=True, capture_output=True, text=True).stdout
    return [row.split("\t")[0] for row in out.splitlines()]


@pytest.mark.parametrize("shell", [bash, fish])
def test_commands_options_and_values_are_completed(shell):
    assert set(shell("discreet", "")) == {command["command"].split()[1] for command in TABLE["commands"]}
    assert shell("discreet", "led") == ["ledger"]
    assert set(shell("discreet", "ledger", "")) == {"verify", "show", "prove", "check", "trace", "export", "summarise"}
    assert set(shell("discreet", "unlearn", "init", "--e")) == {"--engine", "--epsilon", "--events"}
    assert set(shell("discreet", "account", "--accountant", "")) == {"pld", "rdp", "moments", "gdp", "f_dp"}
    assert shell("discreet", "account", "--delta", "") == []
    assert set(shell("discreet", "completion", "")) == {"bash", "zsh", "fish"}


def test_bash_completes_paths_and_folders(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run.yaml").write_text("")
    assert set(bash("discreet", "train", f"{tmp_path}/r")) == {f"{tmp_path}/run", f"{tmp_path}/run.yaml"}
    assert bash("discreet", "trace", f"{tmp_path}/r") == [f"{tmp_path}/run"]


def test_the_script_for_zsh_is_sound():
    script = discreet("completion", "zsh").stdout
    assert script.startswith("#compdef discreet\n") and "_discreet_ledger_verify() {" in script
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n"], input=script, check=True, text=True)


def test_there_is_a_manual_page_for_every_command(tmp_path):
    assert discreet("manual", str(tmp_path)).returncode == 0
    pages = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(pages) == {"discreet.1", *(f"{c['command'].replace(' ', '-')}.1" for c in TABLE["commands"])}
    for command in TABLE["commands"]:
        page = pages[f"{command['command'].replace(' ', '-')}.1"]
        plain = re.sub(r"\\f[BIR]", "", page).replace("\\-", "-")
        for each in (command, *command["commands"]):
            assert all(f"\n{option['name']}" in plain for option in each["options"]), each["command"]
        assert page.isascii()
        if shutil.which("groff"):
            printed = subprocess.run(["groff", "-man", "-ww", "-Tascii"], input=page, check=True, capture_output=True, text=True)
            assert printed.stderr == ""
