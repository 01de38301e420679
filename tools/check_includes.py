#!/usr/bin/env python3
"""Rejects includes that the rooms' CMakeLists.txt do not declare, and declarations that no include needs.

    tools/check_includes.py [ROOT]

discreet/CMakeLists.txt lists the rooms in flow order, discreet/ROOM/CMakeLists.txt the rooms that ROOM depends on.
1. A room depends on rooms before it in the list only.
2. A source includes its own room and the rooms after DEPENDS, and each of those is included somewhere in the room. Tests
   (*_test.cpp, *_testing.*) may include whatever the room reaches through its dependencies.
3. Folders of one room listed in FOLDERS below include each other from right to left only; a folder and those inside it
   belong together.
4. No room includes the umbrella discreet/discreet.h, a file by a relative path, or anything of cli, python, tests, examples or
   benchmarks; these may include every room.
"""

import pathlib
import re
import sys

FOLDERS = {
    "accounting": ["contour", "transform", "sampling", "renyi", "tradeoff"],
    "mechanism": ["sample", "clip", "noise", "route", "step"],
    "unlearning": ["capacity", "engines", "online", "service"],
}
OUTSIDE = {"cli", "python", "tests", "examples", "benchmarks"}
INCLUDE = re.compile(r'\s*#\s*include\s*["<]([^">]+)[">]')
TEST = re.compile(r"_test\.cpp$|_testing\.(h|cpp)$")


def declared(path):
    """The rooms after DEPENDS in a CMakeLists.txt, each with its line."""
    out, inside = {}, False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for word in line.partition("#")[0].replace("(", " ").replace(")", " ) ").split():
            if word.isupper() or word == ")":
                inside = word == "DEPENDS"
            elif inside:
                out[word] = number
    return out


class Rooms:
    def __init__(self, root):
        self.root = root
        text = (root / "discreet/CMakeLists.txt").read_text(encoding="utf-8")
        self.flow = re.search(r"set\(rooms ([^)]*)\)", text)[1].split()
        self.lists = {room: root / "discreet" / room / "CMakeLists.txt" for room in self.flow}
        self.depends = {room: declared(path) if path.exists() else {} for room, path in self.lists.items()}
        self.used = {room: set() for room in self.flow}
        self.reached = {}
        for room in self.flow:
            self.reached[room] = {room}.union(*(self.reached.get(other, set()) for other in self.depends[room]))

    def check_lists(self):
        for place, room in enumerate(self.flow):
            for other, line in self.depends[room].items():
                if other not in self.flow:
                    yield self.lists[room], line, f"{other} is not a room; discreet/CMakeLists.txt lists them"
                elif self.flow.index(other) >= place:
                    yield self.lists[room], line, f"room {room} must not depend on room {other}, which comes after it"
                elif other not in self.used[room]:
                    yield self.lists[room], line, f"room {room} includes nothing of {other}; remove it from DEPENDS"

    def check_include(self, room, path, target):
        parts = target.split("/")
        if parts[0] in OUTSIDE:
            return f"room {room} must not include {parts[0]}"
        if parts[0] != "discreet":
            if ".." in parts or (path.parent / target).exists():
                return f'write "{target}" as its path from the root, discreet/{room}/…'
            return None
        if len(parts) == 2:
            return f"room {room} must not include the umbrella {target}; include what is used"
        other = parts[1]
        if other not in self.flow:
            return f"{other} is not a room; discreet/CMakeLists.txt lists them"
        if other == room:
            return self.check_folders(room, path, parts)
        if TEST.search(path.name):
            return None if other in self.reached[room] else f"room {room} does not reach room {other}"
        self.used[room].add(other)
        return None if other in self.depends[room] else f"room {room} does not declare {other} after DEPENDS"

    def check_folders(self, room, path, parts):
        order = FOLDERS.get(room, [])
        here = path.relative_to(self.root / "discreet" / room).parts[0]
        if here in order and parts[2] in order and order.index(parts[2]) > order.index(here):
            return f"folder {room}/{here} must not include {room}/{parts[2]}, which comes after it"
        return None

    def check_sources(self):
        for path in sorted((self.root / "discreet").glob("*/**/*")):
            room = path.relative_to(self.root / "discreet").parts[0]
            if path.suffix not in {".h", ".cpp"}:
                continue
            if room not in self.flow:
                yield path, 1, f"{room} is not a room; discreet/CMakeLists.txt lists them"
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if (match := INCLUDE.match(line)) and (problem := self.check_include(room, path, match[1])):
                    yield path, number, problem


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    rooms = Rooms(root)
    findings = [*rooms.check_sources(), *rooms.check_lists()]
    for path, line, problem in findings:
        print(f"{path.relative_to(root)}:{line}: {problem}")
    if not findings:
        print(f"includes: {len(rooms.flow)} rooms include what they declare")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
