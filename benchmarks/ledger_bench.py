"""A ledger of 60,000 contributions: epochs appended durably, and the whole file verified.

The peers are the promised times. Every append is two durable commits with the batch read back in between.
"""

import json
import pathlib
import subprocess

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks/ledger_bench"
CONTRIBUTIONS = 60_000


def run():
    found = json.loads(subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout)
    entries = found["entries"]
    return [
        {"work": f"append and sign an epoch of {CONTRIBUTIONS} uses", "ours": found["append_seconds"],
         "peer": "100,000 entries a second", "theirs": CONTRIBUTIONS / 100_000, "at_least": 1},
        {"work": f"verify {entries} entries", "ours": found["verify_seconds"],
         "peer": "500,000 entries a second", "theirs": entries / 500_000, "at_least": 1},
    ]
