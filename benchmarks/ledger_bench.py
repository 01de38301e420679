"""A ledger of 60,000 contributions: epochs appended durably, and the whole file verified.

The peers are the promised times. Every append is two durable commits with the batch read back in between.
"""

import json
import pathlib
import subprocess

GOVERNED = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks/governed_bench"
PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks/ledger_bench"
CONTRIBUTIONS = 60_000


def run():
    found = json.loads(subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout)
    entries = found["entries"]
    governed = json.loads(subprocess.run([GOVERNED], check=True, capture_output=True, text=True).stdout)
    return [
        {"work": f"append and sign an epoch of {CONTRIBUTIONS} uses", "ours": found["append_seconds"],
         "peer": "100,000 entries a second", "theirs": CONTRIBUTIONS / 100_000, "at_least": 1},
        {"work": f"verify {entries} entries", "ours": found["verify_seconds"],
         "peer": "500,000 entries a second", "theirs": entries / 500_000, "at_least": 1},
        {"work": f"ledger of an epoch of training on {CONTRIBUTIONS} contributions", "ours": governed["ledger_seconds"],
         "peer": "1% of the epoch", "theirs": governed["epoch_seconds"] / 100, "at_least": 1},
    ]
