"""Runs the command under test."""

import json
import os
import subprocess


def discreet(*args, **kwargs):
    return subprocess.run([os.environ["DISCREET"], *args], capture_output=True, text=True, **kwargs)


def answer(*args, status=0):
    """What it says under --json."""
    result = discreet(*map(str, args), "--json")
    assert result.returncode == status, result.stderr + result.stdout
    return json.loads(result.stdout)


def refusal(*args, status=2):
    """The single line of its error."""
    result = discreet(*map(str, args))
    assert result.returncode == status, result.stdout + result.stderr
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    return result.stderr
