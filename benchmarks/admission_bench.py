"""The gate: descriptors verified per second of a core, and answers from the epoch's cache.

Times are processor times, medians of 5 interleaved repetitions, per descriptor.
"""

import json
import pathlib
import subprocess

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks/admission_bench"


def run():
    output = subprocess.run(
        [PROGRAM, "--benchmark_format=json", "--benchmark_min_time=0.1", "--benchmark_repetitions=5",
         "--benchmark_enable_random_interleaving=true", "--benchmark_report_aggregates_only=true"],
        check=True, capture_output=True, text=True).stdout
    time = {b["run_name"].removesuffix("/process_time"): 1 / b["items_per_second"]
            for b in json.loads(output)["benchmarks"] if b["aggregate_name"] == "median"}
    return [
        {"work": "a new descriptor through the gate, one core", "ours": time["admit/1"],
         "peer": "4,500 a second", "theirs": 1 / 4500, "at_least": 1},
        {"work": "a new descriptor through the gate, one core", "ours": time["admit/1"],
         "peer": "its signature alone (OpenSSL)", "theirs": time["signature"], "at_least": 0.7},
        {"work": "is this contribution admitted? (cached)", "ours": time["find"],
         "peer": "1 million a second", "theirs": 1e-6, "at_least": 1},
    ]
