#!/usr/bin/env python3
"""Finds initializers that g++ 12 destroys twice.

    tools/check_initializers.py [ROOT]

Where an aggregate has a member initialised by braces without a type, part of it constant, and a later initializer throws,
g++ 12 runs that member's destructor and those of its own members: a double free. For example, with
`struct Name { std::string text; int n; }; struct Row { Name name; int value; };`

    Row{{text, 5}, parse(input)};       // text is destroyed twice if parse() throws
    Row{Name{text, 5}, parse(input)};   // fine: the member's type is named

The check reads text, not types: it wants the type named wherever a braced element that holds a name is followed by an
element, not braced itself, with a call. Lists of pairs and the like are braced throughout and are not meant.
"""

import pathlib
import re
import sys

QUIET = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
FOLDERS = ["discreet", "cli", "python", "tests", "examples", "benchmarks"]
OPEN, CLOSE = "([{", ")]}"


def blanked(text):
    """The text with comments and literals blanked, so that brackets mean what they say."""
    def blank(match):
        word = match.group()
        return re.sub(r"[^\n]", " ", word) if word[0] == "/" else re.sub(r"[^\n]", "0", word)
    return QUIET.sub(blank, text)


def closes(text):
    """Where each opening bracket ends."""
    found, stack = {}, []
    for at, c in enumerate(text):
        if c in OPEN:
            stack.append(at)
        elif c in CLOSE and stack:
            found[stack.pop()] = at
    return found


def elements(text, begin, end, ends):
    """The elements of the list between two brackets, or None for a block of statements."""
    out, start, at = [], begin, begin
    while at < end:
        if text[at] in OPEN:
            at = ends.get(at, end)
        elif text[at] == ";":
            return None
        elif text[at] == ",":
            out.append((start, at))
            start = at + 1
        at += 1
    return out + [(start, end)]


def is_braced(text, begin, end, ends):
    """Whether an element is a list in braces without a type; designated ones too."""
    word = re.match(r"\s*(?:\.\w+\s*=\s*)?", text[begin:end])
    first = begin + word.end()
    return first < end and text[first] == "{" and not text[ends.get(first, end) + 1:end].strip()


def doubtful(text):
    """Line numbers of such initializers."""
    text = blanked(text)
    ends = closes(text)
    for opening, closing in sorted(ends.items()):
        if text[opening] != "{":
            continue
        parts = elements(text, opening + 1, closing, ends)
        if not parts:
            continue
        braced = [is_braced(text, *part, ends) for part in parts]
        for i, part in enumerate(parts):
            later = [text[b:e] for (b, e), same in zip(parts[i + 1:], braced[i + 1:]) if not same]
            if braced[i] and re.search(r"[A-Za-z_]", text[slice(*part)]) and any(re.search(r"[\w>\]]\s*\(", e) for e in later):
                yield text.count("\n", 0, part[0]) + 1
                break


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    files = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*"))
             if path.suffix in {".h", ".cpp"}]
    findings = [f"{path.relative_to(root)}:{line}: name the type of the braced member; "
                "g++ 12 destroys it twice if a later initializer throws"
                for path in files for line in doubtful(path.read_text(encoding="utf-8"))]
    print("\n".join(findings) or f"initializers: {len(files)} files name the types of nested members")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
