"""A corpus that ledger_example or release_example makes: its ledger, notes and keys."""

import os
import pathlib
import subprocess


def make(program, folder):
    path = pathlib.Path(os.environ["DISCREET_BUILD"]) / "tests" / program
    printed = subprocess.run([path, folder], check=True, capture_output=True, text=True).stdout
    (folder / "hashes").write_text(printed)


def hashes(folder):
    """Of the contributions' descriptors."""
    return (folder / "hashes").read_text().split()
