#!/usr/bin/env python3
"""The lint rules of the specification's VII.A for the rooms `mechanism`, `config` and `layout`.

    tools/check_mechanism.py [ROOT]

  noise    only noise.cpp includes a sampler of noise: it is drawn in one place, and never in binary32, whose
           short tails no account covers
  globals  no variable outlives a call: none at namespace scope and no `static` or `thread_local`
           one, unless it is constant
  state    every field of Mechanism::State is read back by read(), and written by save() unless it is
           below the comment "Not saved"
Tests may do the first two.
"""

import pathlib
import re
import sys

SAMPLERS = {f"discreet/random/{name}.h" for name in ("gaussian", "laplace", "discrete", "skellam")}
BINARY32 = "fill_gaussian_native32"
INCLUDE = re.compile(r'\s*#\s*include\s*["<]([^">]+)[">]')
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
CONSTANT = re.compile(r"\b(const|constexpr|consteval)\b")
NO_VARIABLE = re.compile(r"(using|typedef|namespace|class|struct|enum|union|template|static_assert|friend"
                         r"|extern|return|goto|break|continue|public|private|protected)\b")


def blank(match):
    """As many lines, nothing on them; a text stays a text."""
    return ('""' if match[0][0] in "\"'" else "") + "\n" * match[0].count("\n")


def is_variable(statement):
    """Whether a statement without its body declares a variable, by its form."""
    statement = re.sub(r"\[\[.*?\]\]|\balignas\([^)]*\)", "", statement).strip()
    if not statement or NO_VARIABLE.match(statement):
        return False
    head = re.split(r"=", statement, maxsplit=1)[0]
    if "operator" in head:
        return False
    if "(" in head:  # a function, unless what follows the name is a value
        return bool(re.search(r"\w\s*\(\s*(-?\d|\"|true|false|nullptr)", head))
    return bool(re.match(r"[A-Za-z_:][\w:<>,&*\s\[\]]*[\s&*>]\w+(\s*\[[^\]]*\])?\s*$", head))


def statements(text):
    """(line, text, whether at namespace scope) of every statement and every head of a body."""
    text = DIRECTIVE.sub(lambda m: "\n" * m[0].count("\n"), COMMENT_OR_TEXT.sub(blank, text))
    scopes = []  # True: a namespace
    statement, line, began = "", 1, 1
    for character in text:
        if character == "\n":
            line += 1
        if character not in "{};":
            if not statement.strip():
                began = line
            statement += character
            continue
        inside = statement.strip()
        if character == "{":
            is_namespace = bool(re.match(r"(inline\s+)?namespace\b|extern\s*\"\"$", inside))
            if not is_namespace:
                yield began, inside, all(scopes)
            scopes.append(is_namespace)
        elif character == ";":
            yield began, inside, all(scopes)
        elif scopes:
            scopes.pop()
        statement = ""


def mutable(text):
    for line, statement, at_namespace_scope in statements(text):
        plain = re.sub(r"^(inline|constinit)\s+", "", statement)
        kept = re.match(r"(static|thread_local)\s+(static\s+|thread_local\s+|inline\s+)*", plain)
        if kept:
            plain = plain[kept.end():]
        if (kept or at_namespace_scope) and not CONSTANT.search(plain.split("=")[0].split("(")[0]) \
                and is_variable(plain):
            yield line, plain.split("=")[0].strip()


def body(text, head):
    """The text from `head` to the line that closes it, and the number of its first line."""
    at = text.find(head)
    if at < 0:
        return None, 0
    return text[at:text.find("\n}", at)], text.count("\n", 0, at) + 1


def check_state(room):
    header, source = room / "step/apply_impl.h", room / "step/apply_state.cpp"
    if not header.exists():
        return
    fields, first = body(header.read_text(encoding="utf-8"), "struct Mechanism::State {")
    text = source.read_text(encoding="utf-8")
    save, read = (body(text, f"Mechanism::{name}(")[0] for name in ("save", "read"))
    if not (fields and save and read):
        yield header, 1, "Mechanism::State, save or read is not where this check looks for it"
        return
    saved = True
    for number, line in enumerate(fields.splitlines(), first):
        saved = saved and "Not saved" not in line
        match = re.match(r"  [\w:<>,\s*]+?\s(\w+)(\{\}|\s*=[^;]*)?;", line)
        if not match:
            continue
        for name, code in (("save", save), ("read", read)):
            if (saved or name == "read") and not re.search(rf"\bs\.{match[1]}\b", code):
                yield header, number, f"the field {match[1]} of the state is not in {name}()"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    rooms = [root / "discreet" / name for name in ("config", "layout", "mechanism")]
    findings = list(check_state(rooms[-1]))
    files = 0
    for path in sorted(path for room in rooms for path in room.glob("**/*")):
        if path.suffix not in {".h", ".cpp"} or path.stem.endswith(("_test", "_testing")):
            continue
        files += 1
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            if match and match[1] in SAMPLERS and path.name != "noise.cpp":
                findings.append((path, number, f"{match[1]} is for noise.cpp alone: noise is drawn "
                                               "in one place"))
            if BINARY32 in line:
                findings.append((path, number, f"{BINARY32} has shorter tails than a Gaussian, which no account "
                                               "covers: use fill_gaussian"))
        for number, name in mutable(text):
            findings.append((path, number, f"'{name}' outlives a call and is not constant: state "
                                           "belongs into Mechanism::State"))
    for path, number, problem in findings:
        print(f"{path.relative_to(root)}:{number}: {problem}")
    if not findings:
        print(f"mechanism: {files} files draw noise in one place, keep no hidden state, save it all")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
