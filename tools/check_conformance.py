#!/usr/bin/env python3
"""Checks tests/conformance/clauses/*.yaml and the page docs/conformance.md, which is written from them.

    tools/check_conformance.py [ROOT]     check; exit status 1 and one line per problem
    tools/check_conformance.py --write    write docs/conformance.md again

A file holds one section of a specification:

    specification: S1                     title: the name of the specification
    section: "S1 section 1: …"            parts: a list of {title, about, clauses}

and a clause has

    id            unique
    requirement   one testable sentence
    room          a folder of discreet/, or cli, python, docs
    tests         `Suite.Name` of a GoogleTest, or `path/test_file.py::test_name`; empty while the clause is open
    reach         how a user reaches it, as the named tests do: command, configuration, python, c++; or project,
                  for rules that documents and linters show. Empty while the clause is open
    note          optional

A clause about a name (a configuration key, a metric, a field that a record has) needs a test that mentions it. Reading a
key from a file does not show that it acts: tests of `ConfigRead` alone do not count.
"""

import ast
import collections
import functools
import pathlib
import re
import sys

try:
    import yaml
except ImportError:
    sys.exit("check_conformance: PyYAML is missing; run build/venv/bin/python tools/check_conformance.py")

ROOMS = ["base", "numerics", "random", "accounting", "config", "layout", "mechanism", "admission", "ledger",
         "data", "run", "training", "unlearning", "release", "report", "cli", "python", "docs"]
REACHES = {
    "command": "a `discreet` command",
    "configuration": "a key of a YAML file",
    "python": "the Python package",
    "c++": "the C++ library",
    "project": "documents and linters",
}
FIELDS = {"id", "requirement", "room", "tests", "reach", "note"}
GTEST = re.compile(r"^\s*(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.M)
# The name that a requirement is about.
SUBJECT = re.compile(r"`([a-z][\w.]*)(?:`:|: )|(?:Holds|Logs|`\w+` has) `([a-z][\w.]*)`")
PAGE = "docs/conformance.md"
HEAD = """# Conformance

<!-- Written by tools/check_conformance.py --write from tests/conformance/clauses; do not edit. -->

{summary}

- **S1** is the differential-privacy gradient applicator `Apply_v3`, **S2** depth-selective routing of signed contributions,
  **S3** Calibrator, MemoryPair and PrivacyOdometer. **SR** are the rules that decide where these are unsound, contradictory
  or silent.
- **Room**: the folder that holds the code; see the [map](../discreet/README.md). `docs` is this folder and the files beside it.
- **Reach**: how a user reaches the clause, judged by the named tests. `c++` alone means that only C++ tests show it today.
- **Tests**: `Suite.Name` is a C++ test, `path::name` a Python test; `not yet` marks an open clause.
- **Note**: `B1` is the soundness rule SR-B1 that changes or sharpens the meaning; the test checks the meaning after the rule.
  "Open" marks a term that the text leaves undefined: its header fixes the definition. "Contradiction" marks a place where the
  text says two things. "Missing" says what an open clause lacks. A requirement stated twice has one row; the line under a
  heading says where the repetition went.

`tools/check_conformance.py`, part of `make lint`, checks that every named test exists, that a clause about a key or a field
has a test that mentions it, and that this page is up to date.
"""


def gtests(root):
    """name: text, of every C++ test."""
    files = [*root.glob("discreet/**/*_test.cpp"), *root.glob("tests/**/*.cpp")]
    texts = (path.read_text("utf-8") for path in files)
    return {".".join(match.groups()): text[match.start():text.find("\n}", match.start())]
            for text in texts for match in GTEST.finditer(text)}


@functools.cache
def definitions(file):
    """name: (text, the names it uses), of every function and constant of a Python file."""
    text = file.read_text("utf-8") if file.is_file() else ""
    found = {}
    for node in ast.parse(text).body:
        names = [node.name] if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else \
            [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]
        parts = [node, *getattr(node, "decorator_list", [])]
        for name in names:
            uses = {getattr(each, "id", getattr(each, "arg", None)) for each in ast.walk(node)}
            found[name] = "\n".join(ast.get_source_segment(text, part) for part in parts), uses
    return found


def text_of(root, name, gtest_texts):
    """The text of a test, with the functions, fixtures and constants that it uses; None if there is no such test."""
    path, separator, function = name.partition("::")
    if not separator:
        return gtest_texts.get(name)
    own = definitions(root / path)
    if function not in own or not function.startswith("test_"):
        return None
    reached, todo = set(), {function}
    while todo:
        reached |= todo
        todo = {use for each in todo for use in own[each][1] if use in own} - reached
    return "\n".join(own[each][0] for each in sorted(reached))


def mentions(clause, texts):
    """Whether one of the tests mentions the name that the clause is about."""
    subject = SUBJECT.match(clause["requirement"])
    if not subject or not texts:
        return True
    stem = (subject[1] or subject[2]).rpartition(".")[2].removesuffix("_t")
    return any(re.search(rf"\b{stem}(_t)?\b", text) for name, text in texts.items() if not name.startswith("ConfigRead."))


def reached_by(test):
    """What this test can show; a C++ test may read a configuration."""
    path, separator, _ = test.partition("::")
    if not separator:
        return {"c++", "configuration"}
    if path.startswith(("tests/cli/", "tests/crash/", "tests/package/")):
        return {"command", "configuration"}
    return {"python"} if path.startswith("python/") else {"project"}


def sections(root):
    """(file, its content), in the order of the page."""
    for path in sorted((root / "tests" / "conformance" / "clauses").glob("*.yaml")):
        yield path, yaml.safe_load(path.read_text("utf-8"))


def problems_of(clause, root, gtest_texts):
    unknown = sorted(set(clause) - FIELDS)
    missing = sorted(FIELDS - {"note"} - set(clause))
    if unknown or missing:
        yield f"a clause has the fields {', '.join(sorted(FIELDS))}; " + \
            "; ".join(f"{word} {', '.join(names)}" for word, names in (("unknown", unknown), ("missing", missing)) if names)
        return
    name, tests, reach = clause["id"], clause["tests"], clause["reach"]
    if clause["room"] not in ROOMS:
        yield f"{name}: unknown room {clause['room']}; expected one of {', '.join(ROOMS)}"
    texts = {test: text_of(root, test, gtest_texts) for test in tests}
    for test, text in texts.items():
        if text is None:
            yield f"{name}: the test {test} does not exist"
    if None not in texts.values() and not mentions(clause, texts):
        yield f"{name}: no named test mentions what the clause is about, besides tests of ConfigRead"
    for value in reach:
        if value not in REACHES:
            yield f"{name}: unknown reach {value}; expected one of {', '.join(REACHES)}"
        elif tests and not any(value in reached_by(test) for test in tests):
            yield f"{name}: the reach {value} needs a test that uses it"
    if bool(tests) != bool(reach):
        yield f"{name}: a clause with tests has a reach, and an open one has none"


def cell(text):
    return text.replace("|", "\\|")


def row(clause):
    tests = ", ".join(f"`{test}`" for test in clause["tests"]) or "not yet"
    return (f"| {clause['id']} | {cell(clause['requirement'])} | {clause['room']} | {', '.join(clause['reach'])} | {tests} "
            f"| {cell(clause.get('note', ''))} |")


def summary(contents):
    clauses = [(content["specification"], clause) for content in contents for part in content["parts"]
               for clause in part.get("clauses", [])]
    done = [clause for _, clause in clauses if clause["tests"]]
    still = [clause["id"] for _, clause in clauses if not clause["tests"]]
    lines = [f"{len(done)} of {len(clauses)} clauses have a named test; {len(still)} are open.", "",
             "| specification | clauses | open |", "|---|---|---|"]
    titles = {content["specification"]: content["title"] for content in contents}
    for name, title in titles.items():
        own = [clause for specification, clause in clauses if specification == name]
        lines.append(f"| {name}: {title} | {len(own)} | {sum(not clause['tests'] for clause in own)} |")
    by = [f"{sum(value in clause['reach'] for clause in done)} by {words}" for value, words in REACHES.items()]
    only = sum(clause["reach"] == ["c++"] for clause in done)
    lines += ["", f"Tests reach clauses in these ways, some in several: {', '.join(by)}. Only C++ tests reach {only} of them."]
    if still:
        lines.append(f"Open: {', '.join(still)}.")
    return "\n".join(lines)


def page(contents):
    lines, specification = [HEAD.format(summary=summary(contents))], None
    for content in contents:
        if content["specification"] != specification:
            specification = content["specification"]
            lines.append(f"## {specification}. {content['title']}\n")
        lines.append(f"### {content['section']}\n")
        for part in content["parts"]:
            if "title" in part:
                lines.append(f"#### {part['title']}\n")
            if "about" in part:
                lines.append(f"{part['about']}\n")
            if part.get("clauses"):
                lines += ["| id | requirement | room | reach | tests | note |", "|---|---|---|---|---|---|",
                          *map(row, part["clauses"]), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def main(arguments):
    write = "--write" in arguments
    paths = [argument for argument in arguments if argument != "--write"]
    root = pathlib.Path(paths[0] if paths else pathlib.Path(__file__).resolve().parents[1])
    gtest_texts, seen, problems, contents = gtests(root), set(), [], []
    total, still = collections.Counter(), collections.Counter()
    for path, content in sections(root):
        contents.append(content)
        for clause in (clause for part in content["parts"] for clause in part.get("clauses", [])):
            found = list(problems_of(clause, root, gtest_texts))
            if not found or "id" in clause:
                if clause["id"] in seen:
                    found.append(f"{clause['id']}: the id occurs twice")
                seen.add(clause["id"])
            total[clause.get("room")] += 1
            still[clause.get("room")] += not clause.get("tests")
            problems += [f"{path.relative_to(root)}: {sentence}" for sentence in found]
    if not problems:
        text, file = page(contents), root / PAGE
        if write:
            file.write_text(text, "utf-8")
        elif not file.is_file() or file.read_text("utf-8") != text:
            problems.append(f"{PAGE}: not what the clauses say; run tools/check_conformance.py --write")
    for problem in problems:
        print(problem)
    if problems:
        return 1
    rooms = ", ".join(f"{room} {still[room]} of {total[room]}" for room in ROOMS if total[room])
    print(f"conformance: {still.total()} of {total.total()} clauses open: {rooms}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
