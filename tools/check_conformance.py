#!/usr/bin/env python3
"""Checks docs/conformance.md: every named test exists; and counts what is open.

    tools/check_conformance.py [ROOT]

A row is `| id | requirement | room | test | note |`. Its test is `not yet`, or one or more test names in
backticks: `Suite.Name` of a GoogleTest in a *_test.cpp or below tests/, or `path/test_file.py::test_name`.
Ids are unique, and rooms are known.
"""

import collections
import pathlib
import re
import sys

ROOMS = ["base", "numerics", "random", "accounting", "config", "layout", "mechanism", "admission", "ledger",
         "data", "run", "training", "unlearning", "release", "report", "cli", "python", "docs"]
GTEST = re.compile(r"^\s*(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.M)
PYTEST = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.M)


def gtests(root):
    files = [*root.glob("discreet/**/*_test.cpp"), *root.glob("tests/**/*.cpp")]
    return {".".join(names) for path in files for names in GTEST.findall(path.read_text("utf-8"))}


def exists(root, name, gtest_names):
    path, separator, function = name.partition("::")
    if not separator:
        return name in gtest_names
    file = root / path
    return file.is_file() and function in PYTEST.findall(file.read_text("utf-8"))


def rows(text):
    """(line number, cells) of each table row but headers."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells[0] != "id" and not set(cells[0]) <= set("-:"):
            yield number, cells


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    table = root / "docs" / "conformance.md"
    gtest_names = gtests(root)
    problems = []
    total = collections.Counter()
    open_rows = collections.Counter()
    seen = set()
    for number, cells in rows(table.read_text("utf-8")):
        if len(cells) != 5:
            problems.append((number, f"{len(cells)} cells instead of 5"))
            continue
        clause, _, room, test, _ = cells
        if clause in seen:
            problems.append((number, f"the id {clause} occurs twice"))
        seen.add(clause)
        if room not in ROOMS:
            problems.append((number, f"{room} is no room; the rooms are in tools/check_conformance.py"))
        total[room] += 1
        names = re.findall(r"`([^`]+)`", test)
        if test == "not yet":
            open_rows[room] += 1
        elif not names:
            problems.append((number, f"the test of {clause} is neither `not yet` nor a name in backticks"))
        for name in names:
            if not exists(root, name, gtest_names):
                problems.append((number, f"{clause} names the test {name}, which does not exist"))
    for number, sentence in problems:
        print(f"docs/conformance.md:{number}: {sentence}")
    if problems:
        return 1
    rooms = ", ".join(f"{room} {open_rows[room]} of {total[room]}" for room in ROOMS if total[room])
    print(f"conformance: {open_rows.total()} of {total.total()} rows open: {rooms}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
