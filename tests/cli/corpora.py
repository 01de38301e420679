"""A small corpus of signed contributions, and runs of it."""

import csv
import hashlib
import json
import random
import sqlite3
import time

import pytest
from command import discreet

NOW = time.gmtime()
# A run may start up to a day later than this says, so the tests may run past midnight.
AT = time.strftime("%Y-%m-%dT%H:00:00Z", NOW)

CONFIG = """
data:
  format: csv
  train: notes.csv
  test: test.csv
  label: kind
  classes: [a, b]
  numeric: {{x: [-4, 4], y: [-4, 4], z: [-4, 4]}}
model: {{kind: mlp, hidden: [8, 8, 8]}}
optimizer: {{rate: 0.5}}
corpus:
  policy: policy.yaml
  descriptors: anchors.jsonl
  uses: corpus.uses
  ledger_key: steward.key
  at: {at}
  injection: {injection}
security:
  differential_privacy:
    accountant: rdp
    adjacency: zero_out
    target_epsilon: 30
    target_steps: {steps}
    declared_size: 200
    effective_batch_size: 40
    clipping: {{norm: 1, ghost: {ghost}}}
"""

POLICY = """
corpus: notes
accountant: rdp
floors: {{clip_norm: 0.01, noise_multiplier: 0.3}}
most_validity_days: 800
epoch_seconds: 86400
retention_epochs: 12
noise: {{stddev: 4, clipping: flat}}
classes:
  clinical: {{clip_norm: 1, noise_multiplier: 1, most_occurrences: {uses}, sensitive: true,
    profile: {{layers: [3, 3]}}}}
  open: {{clip_norm: 2, noise_multiplier: 0.4, most_occurrences: 20, profile: {{whole: true}}}}
keys:
  - {{name: hospital, public_key: {key}, classes: [clinical, open]}}
"""


def write_rows(path, seed, count):
    draw = random.Random(seed)
    rows = []
    for i in range(count):
        kind = "ab"[i % 2]
        shift = 1.5 if kind == "b" else -1.5
        rows.append([f"{draw.gauss(shift, 1):.6f}" for _ in range(3)] + [kind])
    with open(path, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["x", "y", "z", "kind"]] + rows)
    return [",".join(row) for row in rows]


@pytest.fixture
def corpus(tmp_path):
    """A signed corpus: a function of how often clinical records may be used, and of the run."""

    def make(uses=6, steps=12, ghost="true", injection="per_step", attested=100):
        lines = write_rows(tmp_path / "notes.csv", 1, 100)
        write_rows(tmp_path / "test.csv", 2, 50)
        key = json.loads(discreet("keygen", "hospital", "--json", cwd=tmp_path).stdout)
        public = key["public_key"]
        assert discreet("keygen", "steward", cwd=tmp_path).returncode == 0
        (tmp_path / "policy.yaml").write_text(POLICY.format(uses=uses, key=public))
        (tmp_path / "train.yaml").write_text(
            CONFIG.format(steps=steps, ghost=ghost, injection=injection, at=AT)
        )
        batch = "contributor,class,anchor,not_before,not_after\n"
        for i, line in enumerate(lines[:attested]):
            kind = "clinical" if i % 2 else "open"
            anchor = hashlib.sha256(line.encode()).hexdigest()
            batch += f"p{i},{kind},{anchor},{NOW.tm_year}-01-01T00:00:00Z,{NOW.tm_year + 1}-02-01T00:00:00Z\n"
        (tmp_path / "batch.csv").write_text(batch)
        done = discreet(
            "attest", "--key", "hospital.key", "--policy", "policy.yaml", "--batch", "batch.csv",
            "--out", "anchors.jsonl", cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return tmp_path

    return make


def train(folder, out, *more, **how):
    return discreet("train", "train.yaml", "--out", out, "--json", *more, cwd=folder, **how)


def header(folder, out):
    for line in (folder / out / "trace.jsonl").read_text().splitlines():
        record = json.loads(line)
        found = find(record, "corpus")
        if found:
            return found
    raise AssertionError("no corpus in the trace")


def find(value, name):
    if isinstance(value, dict):
        if name in value:
            return value[name]
        for inner in value.values():
            found = find(inner, name)
            if found is not None:
                return found
    return None


def used(folder):
    with sqlite3.connect(folder / "corpus.uses") as database:
        tables = [row[0] for row in database.execute("select name from sqlite_master where type='table'")]
        return {t: database.execute(f"select * from {t}").fetchall() for t in tables}


def amplify(folder, rate, steps):
    """Makes the class clinical an amplified one, and signs again."""
    policy = (folder / "policy.yaml").read_text().replace("stddev: 4", "stddev: 1")
    policy = policy.replace("most_occurrences: 6, sensitive: true,",
                            f"most_occurrences: {steps}, sensitive: true, amplified: {{rate: {rate}, steps: {steps}, delta: 0.00001}},")
    (folder / "policy.yaml").write_text(policy)
    (folder / "anchors.jsonl").unlink()
    done = discreet("attest", "--key", "hospital.key", "--policy", "policy.yaml", "--batch", "batch.csv",
                    "--out", "anchors.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
