"""The promises every command keeps: help, version, error form, exit statuses."""

import json
import os
import subprocess

import pytest

from command import discreet

COMMANDS = ["account", "demo", "operators", "plan", "predict", "replay", "selfcheck", "trace", "train"]


def test_help_lists_the_commands_and_exit_statuses():
    result = discreet("--help")
    assert result.returncode == 0
    assert all(f"  {command} " in result.stdout for command in COMMANDS)
    assert "Exit status: 0 done" in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    result = discreet(command, "--help")
    assert result.returncode == 0
    assert f"Example:\n  discreet {command}" in result.stdout


def test_version():
    result = discreet("--version")
    assert (result.returncode, result.stdout.split()[0]) == (0, "discreet")


@pytest.mark.parametrize("args", [[], ["nonsense"], ["selfcheck", "--nonsense"]])
def test_bad_usage_is_one_line_on_stderr_and_status_2(args):
    result = discreet(*args)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: INVALID_USAGE: ")
    assert result.stderr.count("\n") == 1


def test_full_disk_is_status_3():
    with open("/dev/full", "w") as full:
        result = subprocess.run([os.environ["DISCREET"], "selfcheck"], stdout=full,
                                stderr=subprocess.PIPE, text=True)
    assert result.returncode == 3
    assert result.stderr.startswith("error: IO_ERROR: ")


def test_selfcheck_passes_and_speaks_json():
    result = discreet("selfcheck", "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["ok"] is True
