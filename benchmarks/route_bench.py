"""What routing adds to a private step of 256 records: the same step without routes is the peer.

Processor times of 40 interleaved pairs. The seconds are medians; the interval is that of the median
of the pairs' ratios, 95%, by bootstrap. Promised: 2% at most for profiles of layers, 5% for masks.
"""

import json
import pathlib
import random
import statistics
import subprocess

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks/route_bench"


def interval(ratios):
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1949]


def run():
    rows = []
    output = subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout
    for line in output.splitlines():
        case = json.loads(line)
        ratios = [routed / plain for plain, routed in zip(case["plain"], case["routed"])]
        low, high = interval(ratios)
        plain = statistics.median(case["plain"])
        rows.append({"work": f"a routed step, {case['name']}: {100 * (low - 1):+.1f}% to "
                             f"{100 * (high - 1):+.1f}%",
                     "peer": "the step without routes", "theirs": plain,
                     "ours": plain * statistics.median(ratios),
                     "at_least": 1 / 1.05 if "heads" in case["name"] else 1 / 1.02})
    return rows
