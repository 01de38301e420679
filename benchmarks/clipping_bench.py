"""Clipping of explicit per-sample gradients against one plain pass that sums them.

Times are processor times of one thread, medians of 15 interleaved repetitions.
"""

import json
import pathlib
import subprocess

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks/clipping_bench"


def run():
    output = subprocess.run(
        [PROGRAM, "--benchmark_format=json", "--benchmark_filter=/(40|160)/1(/|$)", "--benchmark_min_time=0.01",
         "--benchmark_repetitions=15", "--benchmark_enable_random_interleaving=true",
         "--benchmark_report_aggregates_only=true"], check=True, capture_output=True, text=True).stdout
    time = {b["run_name"].removesuffix("/process_time"): b["cpu_time"] * 1e-3
            for b in json.loads(output)["benchmarks"] if b["aggregate_name"] == "median"}

    def row(what, layers, cut, most):
        return {"work": f"{what} clipping, 64 records of 1e7 binary32 values in {layers} layers",
                "ours": time[f"clip/{layers}/1/{cut}"], "peer": "plain sum of the same",
                "theirs": time[f"plain/{layers}/1"], "at_least": round(1 / most, 3)}

    # A row of 62,500 values stays in a processor's second cache until it is summed; one of 250,000 does not.
    return [row("flat", 160, 0, 2.6), row("flat", 40, 0, 2.6),
            row("per-layer", 160, 1, 1.6), row("per-layer", 40, 1, 1.6)]
