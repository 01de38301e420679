"""Runs every benchmark against its peers and prints the ratios.

    make bench                      all of them
    benchmarks/run.py random        those whose module name contains "random"
    benchmarks/run.py --write       also writes benchmarks/results/<processor>.md

Each module benchmarks/*_bench.py has a function run() that returns rows:
    work      what was done, with its size
    peer      who else did it
    ours      our seconds
    theirs    the peer's seconds
    at_least  the ratio theirs / ours that is promised
Exits with status 1 if a row misses its promise.
"""

import argparse
import importlib
import os
import pathlib
import platform
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "build/python")]


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def seconds(value):
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def table(rows):
    lines = ["| work | ours | peer | theirs | ratio | at least | |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        ratio = row["theirs"] / row["ours"]
        lines.append(f"| {row['work']} | {seconds(row['ours'])} | {row['peer']} | "
                     f"{seconds(row['theirs'])} | {ratio:,.3g}× | {row['at_least']:g}× | "
                     f"{'ok' if ratio >= row['at_least'] else 'MISSED'} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="?", default="", help="part of a module name")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results")
    arguments = parser.parse_args()

    names = [path.stem for path in sorted(HERE.glob("*_bench.py")) if arguments.only in path.stem]
    report = [f"{processor()}, {os.cpu_count()} processors, Python {platform.python_version()}"]
    missed = False
    for name in names:
        print(f"running {name} …", file=sys.stderr, flush=True)
        rows = importlib.import_module(name).run()
        missed |= any(row["theirs"] / row["ours"] < row["at_least"] for row in rows)
        report += [f"\n## {name.removesuffix('_bench')}\n", table(rows)]
    print("\n".join(report))
    if arguments.write:
        slug = re.sub(r"[^a-z0-9]+", "-", processor().lower()).strip("-")
        (HERE / "results" / f"{slug}.md").write_text("# " + "\n".join(report) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
