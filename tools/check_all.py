#!/usr/bin/env python3
"""Runs what `make test` has no time for, and keeps a table of the results in docs/internals/checks.md.

    tools/check_all.py [CHECK…]     all of them, or those named: asan, tsan, fuzz, fuzz_cbor, kills, lint, …
    tools/check_all.py --list

Each check replaces its own row when it ends, so that a run that is stopped leaves the rows of what it did. Knobs:
FUZZ_RUNS (10,000,000 executions) and FUZZ_SECONDS (1,800 processor-seconds), whichever a fuzzer reaches first; JOBS.
"""

import datetime
import fcntl
import os
import pathlib
import re
import resource
import subprocess
import sys
import time

from fuzz_reach import PARSERS, reach

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "check-all"
TABLE = ROOT / "docs" / "internals" / "checks.md"
FUZZERS = re.findall(r"^discreet_fuzzer\((\w+) ", (ROOT / "tests/fuzz/CMakeLists.txt").read_text(), re.M)
JOBS = os.environ.get("JOBS", str(os.cpu_count()))
HEAD = """# What `make check-all` last showed

One row per check: its last run, with day and commit. A "+" means that the sources differed from the commit. *Size* is what was
requested or reached. *Coverage* is the share of the program's edges that the inputs of a fuzzer reach. Times are from this
machine, which ran other work at the same time.

| check | size | result | coverage | time | date | commit |
|---|---|---|---|---|---|---|
"""
PARSERS_HEAD = """
## How deep the fuzzers reach

One row per format that others write. *Edges reached* counts the edges of its readers that the inputs of its fuzzer take.
`tools/fuzz_reach.py FUZZER` lists the functions that no input enters; most of them write the format, or belong to the owner
of a file.

| format | fuzzer | sources | edges reached | date | commit |
|---|---|---|---|---|---|
"""


def text_of(command, env=None):
    """Output and status; the output goes to build/check-all/ too."""
    done = subprocess.run(command, cwd=ROOT, env=os.environ | (env or {}), text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout, done.returncode


def commit():
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    changed = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/internals/checks.md"],
                             cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return head + ("+" if changed else "")


def today():
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")


def replace_rows(new):
    """Rows by their first cell; those of other checks and formats stay."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:  # two runs may keep the table at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = TABLE.read_text().splitlines() if TABLE.exists() else []
        rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")} | new
        formats = [parser for parser, _, _ in PARSERS]
        TABLE.write_text(HEAD + "".join(rows[name] + "\n" for name in CHECKS if name in rows) +
                         PARSERS_HEAD + "".join(rows[name] + "\n" for name in formats if name in rows))


def record(name, commit, size, result, coverage, seconds):
    spent = f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
    row = f"| {name} | {size} | {result} | {coverage or '–'} | {spent} | {today()} | {commit} |"
    replace_rows({name: row})
    print(row, flush=True)
    return result.startswith("passed")


def record_reach(fuzzer, commit):
    replace_rows({parser: f"| {parser} | {fuzzer} | {', '.join(f'`{s}`' for s in sources.split())} "
                          f"| {reached:,} of {edges:,}, {100 * reached / max(1, edges):.0f}% | {today()} | {commit} |"
                  for parser, sources, reached, edges, _ in reach(fuzzer)})


def keep(name, output):
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.log").write_text(output)


def built(preset, *target):
    for command in (["cmake", "--preset", preset], ["cmake", "--build", "--preset", preset, "-j", JOBS, *target]):
        output, status = text_of(command)
        if status != 0:
            keep(preset, output)
            return False
    return True


def sanitizer(name):
    # Ten million entries under the thread sanitizer take more memory than a machine of ours has.
    entries = {"asan": "10000000", "tsan": "1000000"}[name]
    if not built(name):
        return "build", "FAILED to build", ""
    output, status = text_of(["ctest", "--preset", name, "-j", JOBS], {"DISCREET_ENTRIES": entries})
    keep(name, output)
    tests = re.search(r"(\d+)% tests passed, (\d+) tests failed out of (\d+)", output)
    size = f"{tests[3] if tests else '?'} tests, ledger of {int(entries):,} entries"
    failed = re.findall(r"^\s*\d+ - (\S+) \(", output, re.M)
    return size, "passed" if status == 0 else f"FAILED: {', '.join(failed[:5]) or 'see the log'}", ""


def fuzzer(name):
    runs, seconds = int(os.environ.get("FUZZ_RUNS", "10000000")), int(os.environ.get("FUZZ_SECONDS", "1800"))
    done, spent, coverage = 0, 0.0, ""
    if not built("fuzz", "--target", f"{name}_fuzz"):  # its time is not the fuzzer's
        return "build", "FAILED to build", ""
    while done < runs and spent < seconds:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        output, status = text_of(["tests/fuzz/run", name, str(runs - done), str(max(1, int(seconds - spent)))])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        keep(f"fuzz_{name}", output)
        units = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
        done += int(units[1]) if units else 0
        edges, total = re.findall(r"cov: (\d+)", output), re.search(r"\((\d+) inline 8-bit counters\)", output)
        if edges and total:
            coverage = f"{int(edges[-1]):,} of {int(total[1]):,} edges"
        if status != 0:
            found = re.findall(r"(?:SUMMARY|property failed): (.*)", output) or ["?"]
            return f"{done:,} executions", f"FAILED: {found[-1]}", coverage
        spent += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{done:,} executions, {spent / 60:.1f} processor-minutes", "passed", coverage


def tests(*ctest, build=()):
    """Tests of the release build; the size is what they print of themselves."""
    for command in (["cmake", "--preset", "release", f"-DPython_EXECUTABLE={ROOT}/build/venv/bin/python",
                     "-DDISCREET_TESTS=ON"], ["cmake", "--build", "--preset", "release", "-j", JOBS, *build]):
        output, status = text_of(command)
        if status != 0:
            return output, status
    return text_of(["ctest", "--test-dir", "build", "--output-on-failure", "-V", *ctest])


def said(name, pattern, *ctest, build=()):
    output, status = tests(*ctest, build=build)
    keep(name, output)
    sizes = re.findall(pattern, output)
    return "; ".join(sizes) or "?", "passed" if status == 0 and sizes else "FAILED: see the log", ""


def lint():
    output, status = text_of(["tools/lint"])
    keep("lint", output)
    failed = re.findall(r"^(\S+): FAILED", output, re.M)
    return "every file", "passed" if status == 0 else f"FAILED: {', '.join(failed) or 'see the log'}", ""


CRASH = ("--target", "faults", "discreet_cli")
CHECKS = {
    "asan": lambda: sanitizer("asan"),
    "tsan": lambda: sanitizer("tsan"),
    **{f"fuzz_{name}": (lambda name=name: fuzzer(name)) for name in FUZZERS},
    "tampered": lambda: said("tampered", r"\w+AreNotAccepted: (\d+ \w+) tampered, 0 accepted", "-R", "^tampered_whole$",
                             build=("--target", "tamper_test")),
    "kills": lambda: said("kills", r"(\w+: \d+ kills), nothing lost", "-R", "^crash_kills$", build=CRASH),
    "faults": lambda: said("faults", r"(\d+ commands (?:met|found) [\w ]+)", "-R", "^crash_faults$", build=CRASH),
    "processes": lambda: said("processes", r"(\d+ passed)", "-R", "^crash_processes$", build=CRASH),
    "lint": lint,
}


def main(asked):
    if asked == ["--list"]:
        print("\n".join(CHECKS))
        return 0
    names = [name for name in CHECKS if not asked or name in asked or ("fuzz" in asked and name.startswith("fuzz_"))]
    if not names:
        sys.exit(f"unknown check; one of {', '.join(CHECKS)}")
    fine = True
    for name in names:
        begin, at = time.monotonic(), commit()  # as built: sources may change while a check runs
        size, result, coverage = CHECKS[name]()
        fine &= record(name, at, size, result, coverage, time.monotonic() - begin)
        if name.startswith("fuzz_"):
            record_reach(name.removeprefix("fuzz_"), at)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
