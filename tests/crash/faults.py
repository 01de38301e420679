"""Starts the command with faults at chosen calls (tests/faults/faults.c)."""

import os
import pathlib
import subprocess

SHIM = pathlib.Path(os.environ.get("DISCREET_BUILD", "build")) / "tests" / "libfaults.so"
KILLED = 137
KILLS = ["kill", "after", "torn"]  # before the call, after it, in the middle of a write


def run(folder, command, *, write=None, kind="kill", alloc=None, onward=False, **more):
    faults = {"LD_PRELOAD": str(SHIM)}
    if write is not None:
        faults |= {"FAULT_WRITE": str(write), "FAULT_KIND": kind}
    if alloc is not None:
        faults |= {"FAULT_ALLOC": str(alloc)} | ({"FAULT_ALLOC_ON": "1"} if onward else {})
    return subprocess.run([os.environ["DISCREET"], *map(str, command)], cwd=folder, capture_output=True, text=True,
                          env=os.environ | faults | more)


def counts(folder, command):
    """Runs it whole; says how many calls change files, and how many allocate."""
    report = pathlib.Path(folder) / "faults.report"
    done = run(folder, command, FAULT_REPORT=str(report))
    assert done.returncode == 0, done.stderr + done.stdout
    writes, allocations = map(int, report.read_text().split())
    report.unlink()
    return writes, allocations


def discreet(folder, *command):
    return subprocess.run([os.environ["DISCREET"], *map(str, command)], cwd=folder, capture_output=True, text=True)
