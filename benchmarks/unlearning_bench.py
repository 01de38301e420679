"""Deleting one of 50,000 records of dimension 54, against retraining with our own solvers.

Certified deletes follow one another without inserts between; after inserts the next one also computes
the Hessian anew and takes longer. "One by one" is 1,000 times the single delete, not run.
Times are processor times, medians of 5 interleaved repetitions. The limits in absolute time are rows
whose peer is the limit.
"""

import json
import pathlib
import subprocess

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks/unlearning_bench"


def run():
    output = subprocess.run(
        [PROGRAM, "--benchmark_format=json", "--benchmark_repetitions=5",
         "--benchmark_enable_random_interleaving=true", "--benchmark_report_aggregates_only=true"],
        check=True, capture_output=True, text=True).stdout
    time = {b["run_name"].split("/iterations")[0]: b["cpu_time"] * 1e-9
            for b in json.loads(output)["benchmarks"] if b["aggregate_name"] == "median"}

    def row(work, ours, peer, theirs, at_least):
        return {"work": work, "ours": ours, "peer": peer, "theirs": theirs, "at_least": at_least}

    exact, certified, batch = time["exact_delete/1"], time["erm_delete/1"], time["erm_delete/1000"]
    return [
        row("exact delete, statistics only", time["exact_delete/0"], "100 µs", 100e-6, 1),
        row("exact delete and the new model", exact, "100 µs", 100e-6, 1),
        row("exact delete and the new model", exact, "retrain: statistics anew, solve",
            time["exact_retrain"], 100),
        row("certified delete, τ=1e-9", certified, "10 ms", 10e-3, 1),
        row("certified delete, τ=1e-9", certified, "retrain from zero to τ", time["erm_retrain"], 10),
        row("1,000 deletes as one batch, certified", batch, "one by one", 1000 * certified, 20),
    ]
