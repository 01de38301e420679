"""The inference-time gate: a decision once it is loaded, in front of 96 layers with 8 classes of contributions.

The peers are the promised times.
"""

import json
import pathlib
import subprocess

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks/release_bench"


def run():
    found = json.loads(subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout)
    return [
        {"work": f"{what} a request", "ours": found[f"{what}_seconds"], "peer": "10 µs a decision",
         "theirs": 10e-6, "at_least": 1}
        for what in ("allow", "deny")
    ]
