"""Deleting one of 50,000 records of dimension 54, against retraining with our own solvers.

Records are generated; then the same on MNIST, projected to 54 dimensions by a public random matrix (MNIST=DIRECTORY holds its
files; skipped without them), even digits against odd ones. "After ten inserts" is the specification's workload; contrary
inserts have their labels flipped. "One by one" is 1,000 times the single delete, not run. The service's delete is on a memory
disk: what it takes beside its three commits. Times are processor times (the service: elapsed), medians of 5 interleaved
repetitions. The limits in absolute time are rows whose peer is the limit.
"""

import gzip
import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/benchmarks/unlearning_bench"


def measured(environment):
    output = subprocess.run(
        [PROGRAM, "--benchmark_format=json", "--benchmark_repetitions=5",
         "--benchmark_enable_random_interleaving=true", "--benchmark_report_aggregates_only=true"],
        check=True, capture_output=True, text=True, env=os.environ | environment).stdout
    return {b["run_name"].split("/iterations")[0]:
            b["real_time" if "real_time" in b["run_name"] else "cpu_time"] * 1e-9
            for b in json.loads(output)["benchmarks"] if b["aggregate_name"] == "median"}


def mnist():
    """50,000 rows of 54 features of norm at most 1 and a label, or None."""
    folder = pathlib.Path(os.environ.get("MNIST") or ROOT.parent / "shared/data/mnist").resolve()
    images, labels = folder / "train-images-idx3-ubyte.gz", folder / "train-labels-idx1-ubyte.gz"
    if not (images.is_file() and labels.is_file()):
        return None
    x = np.frombuffer(gzip.open(images).read(), np.uint8, offset=16).reshape(-1, 784)[:50_000] / 255
    y = np.frombuffer(gzip.open(labels).read(), np.uint8, offset=8)[:50_000]
    x = (x - 0.13) @ np.random.default_rng(0).normal(size=(784, 54)) / np.sqrt(54)
    x /= np.maximum(1e-12, np.linalg.norm(x, axis=1, keepdims=True))
    return np.column_stack([x, np.where(y % 2 == 0, 1.0, -1.0)])


def rows(time, records):
    def row(work, ours, peer, theirs, at_least):
        return {"work": f"{work}, {records}", "ours": ours, "peer": peer, "theirs": theirs,
                "at_least": at_least}

    exact, certified, batch = time["exact_delete/1"], time["erm_delete/1"], time["erm_delete/1000"]
    between, contrary = time["erm_delete_after_inserts/1"], time["erm_delete_after_inserts/-1"]
    retrain = time["erm_retrain"]
    return [
        row("exact delete, statistics only", time["exact_delete/0"], "100 µs", 100e-6, 1),
        row("exact delete and the new model", exact, "100 µs", 100e-6, 1),
        row("exact delete and the new model", exact, "retrain: statistics anew, solve",
            time["exact_retrain"], 100),
        row("exact delete with its receipt, beside 3 commits", time["service_delete/0"], "1 ms", 1e-3, 1),
        row("certified delete, τ=1e-9", certified, "10 ms", 10e-3, 1),
        row("certified delete, τ=1e-9", certified, "retrain from zero to τ", retrain, 10),
        row("certified delete after ten inserts", between, "10 ms", 10e-3, 1),
        row("certified delete after ten inserts", between, "retrain from zero to τ", retrain, 10),
        row("certified delete after ten contrary inserts", contrary, "retrain from zero to τ", retrain, 10),
        row("1,000 deletes as one batch, certified", batch, "one by one", 1000 * certified, 20),
    ]


def run():
    found = rows(measured({}), "generated")
    records = mnist()
    if records is None:
        return found
    with tempfile.NamedTemporaryFile() as file:
        records.astype("<f8").tofile(file.name)
        return found + rows(measured({"DISCREET_RECORDS": file.name}), "MNIST")
