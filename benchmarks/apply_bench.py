"""A step of 10 million parameters by Apply_v3: what accounting, records and noise take of it.

Times are processor times, medians of 9 interleaved repetitions.
"""

import json
import pathlib
import subprocess

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks/apply_bench"


def run():
    output = subprocess.run(
        [PROGRAM, "--benchmark_format=json", "--benchmark_min_time=0.01", "--benchmark_repetitions=9",
         "--benchmark_enable_random_interleaving=true", "--benchmark_report_aggregates_only=true"],
        check=True, capture_output=True, text=True).stdout
    time = {b["run_name"].removesuffix("/process_time"): b["cpu_time"] * 1e-3
            for b in json.loads(output)["benchmarks"] if b["aggregate_name"] == "median"}

    def share(work, ours, records):
        return {"work": work, "ours": ours, "peer": f"1% of a step of {records} records",
                "theirs": time[f"step/{records}/1"] / 100, "at_least": 1}

    def accounting(steps):
        return share(f"accounting of a step after {steps}, q=256/60000 σ=1.1",
                     time[f"accounting_at/{steps}/iterations:20"], 256)

    return [
        *(accounting(steps) for steps in (1, 100, 1000, 10000)),
        share("replay token, trace line and its chain, fingerprint of the state", time["records"], 16),
        {"work": "noise of a step, 1e7 parameters", "ours": time["noise/1"], "peer": "the sampler alone",
         "theirs": time["gaussian/1"], "at_least": 0.9},
    ]
