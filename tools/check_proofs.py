#!/usr/bin/env python3
"""Rejects a bound without a proof.

    tools/check_proofs.py [ROOT]

1. A line `// Proof: NAME.md` in any source names a file beside it. That file has a heading "Proven" or
   "Verified numerically" (or both): what is under neither is not claimed.
2. A public header (not *_impl.h, *_testing.h, *-inl.h) of a room in BOUND_ROOMS that declares a bound
   has such a line, or a line `// Citation: …` where the bound is another's theorem used as it is.
   It declares a bound if it declares a function that returns an Interval, or if a comment says
   "upper bound", "lower bound" or "certificate", or calls an epsilon, delta, interval or capacity
   "certified".
"""

import pathlib
import re
import sys

BOUND_ROOMS = ["random", "accounting", "config", "layout", "mechanism", "admission", "data", "unlearning"]
PROOF = re.compile(r"//\s*Proof:\s*(\S+)")
CITATION = re.compile(r"//\s*Citation:\s*\S")
HEADING = re.compile(r"^#+\s.*\b(proven|verified numerically)\b", re.I | re.M)
BOUND = re.compile(
    r"//.*\b((upper|lower) bounds?|certificates?|certified (epsilon|delta|interval|capacity))\b", re.I)
INTERVAL = re.compile(r"^\s*(\[\[nodiscard\]\]\s+)?(static\s+)?(\w+::)*Interval\s+\w+\(")


def is_public_header(path):
    return path.suffix == ".h" and not path.stem.endswith(("_impl", "_testing", "-inl"))


def check(root, path):
    """Problems of one source, as (line, sentence)."""
    room = path.relative_to(root / "discreet").parts[0]
    lines = path.read_text(encoding="utf-8").splitlines()
    supported = False
    for number, line in enumerate(lines, 1):
        if match := PROOF.search(line):
            supported = True
            proof = path.parent / match[1]
            if not proof.is_file():
                yield number, f"the proof {match[1]} is not beside this file"
            elif not HEADING.search(proof.read_text(encoding="utf-8")):
                yield number, f'{match[1]} has no heading "Proven" or "Verified numerically"'
        supported = supported or CITATION.search(line) is not None
    if room in BOUND_ROOMS and is_public_header(path) and not supported:
        for number, line in enumerate(lines, 1):
            if BOUND.search(line) or INTERVAL.match(line):
                yield number, "declares a bound, and the header has no line `// Proof: NAME.md`"
                return


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    findings = 0
    named = set()
    for path in sorted((root / "discreet").glob("**/*")):
        if path.suffix not in {".h", ".cpp"}:
            continue
        named |= {path.parent / m[1] for m in PROOF.finditer(path.read_text(encoding="utf-8"))}
        for line, problem in check(root, path):
            print(f"{path.relative_to(root)}:{line}: {problem}")
            findings += 1
    if not findings:
        print(f"proofs: every bound names its proof; {len(named)} proof files")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
