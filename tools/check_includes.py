#!/usr/bin/env python3
"""Refuses an include, or a CMake dependency, against the direction of the rooms.

    tools/check_includes.py [ROOT]

A room may include itself and the rooms before it:
  base ← numerics ← random ← accounting ← mechanism ← admission ← ledger ← run ← training
       ← {unlearning, release, report} ← {cli, python}
unlearning, release and report do not include each other; unlearning and release do not include
training. No room includes the umbrella discreet/discreet.h, a file by a relative path, or anything of
cli, python, tests, examples or benchmarks; these may include every room.
"""

import pathlib
import re
import sys

FLOW = ["base", "numerics", "random", "accounting", "mechanism", "admission", "ledger", "run",
        "training"]
MAY_INCLUDE = {room: set(FLOW[: i + 1]) for i, room in enumerate(FLOW)}
MAY_INCLUDE["unlearning"] = {"unlearning"} | set(FLOW) - {"training"}
MAY_INCLUDE["release"] = {"release"} | set(FLOW) - {"training"}
MAY_INCLUDE["report"] = {"report"} | set(FLOW)

OUTSIDE = {"cli", "python", "tests", "examples", "benchmarks"}
INCLUDE = re.compile(r'\s*#\s*include\s*["<]([^">]+)[">]')


def refusal(room, target):
    """Why a file of `room` may not name the room `target`, or None."""
    if target not in MAY_INCLUDE:
        return f"{target} is no room; the rooms are listed in tools/check_includes.py"
    if target not in MAY_INCLUDE[room]:
        return f"room {room} may not include room {target}"
    return None


def check_include(room, path, target):
    parts = target.split("/")
    if parts[0] == "discreet":
        if len(parts) == 2:
            return f"room {room} may not include the umbrella {target}; include what is used"
        return refusal(room, parts[1])
    if parts[0] in OUTSIDE:
        return f"room {room} may not include {parts[0]}"
    if ".." in parts or (path.parent / target).exists():
        return f'write "{target}" as its path from the root, discreet/{room}/…'
    return None


def check_source(room, path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, check_include(room, path, match[1])


def check_cmake(room, path):
    """The rooms after DEPENDS, and every discreet::ROOM, in the room's CMakeLists.txt."""
    depends = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for word in line.partition("#")[0].replace("(", " ").replace(")", " ) ").split():
            if word.startswith("discreet::"):
                yield number, refusal(room, word.removeprefix("discreet::"))
            elif word.isupper() or word == ")":
                depends = word == "DEPENDS"
            elif depends:
                yield number, refusal(room, word)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    findings = 0
    files = 0
    for path in sorted((root / "discreet").glob("*/**/*")):
        room = path.relative_to(root / "discreet").parts[0]
        if path.name == "CMakeLists.txt":
            check = check_cmake
        elif path.suffix in {".h", ".cpp"}:
            check = check_source
        else:
            continue
        files += 1
        results = check(room, path) if room in MAY_INCLUDE else [(1, refusal(room, room))]
        for line, problem in results:
            if problem:
                print(f"{path.relative_to(root)}:{line}: {problem}")
                findings += 1
    if not findings:
        print(f"includes: {files} files follow the direction of the rooms")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
