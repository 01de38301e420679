"""Small folders with keys, statements, a ledger, an unlearning store: what is damaged in copies."""

import hashlib
import json
import pathlib
import shutil
import subprocess
import time

import faults
from faults import discreet
from small_run import Small

NOW = time.gmtime()
# A run may start up to a day later than this says, so the tests may run past midnight.
AT = time.strftime("%Y-%m-%dT%H:00:00Z", NOW)

POLICY = """corpus: notes
accountant: rdp
floors: {{clip_norm: 0.01, noise_multiplier: 0.3}}
most_validity_days: 800
epoch_seconds: 86400
retention_epochs: 12
noise: {{stddev: 4, clipping: flat}}
classes:
  open: {{clip_norm: 2, noise_multiplier: 0.4, most_occurrences: 20, profile: {{whole: true}}}}
keys:
  - {{name: hospital, public_key: {key}, classes: [open]}}
"""

CONFIG = """data:
  format: csv
  train: notes.csv
  label: kind
  classes: [a, b]
  numeric: {{x: [-4, 4], y: [-4, 4]}}
model: {{kind: softmax}}
run: {{checkpoint_every: 3}}
corpus:
  policy: policy.yaml
  descriptors: anchors.jsonl
  uses: corpus.uses
  ledger_key: steward.key
  at: {at}
security:
  differential_privacy:
    accountant: rdp
    adjacency: zero_out
    target_epsilon: 30
    target_steps: 10
    declared_size: 20
    effective_batch_size: 4
    clipping: {{norm: 1, ghost: true}}
"""

TRAIN = ["train", "train.yaml", "--out", "run", "--threads", "1"]


def must(folder, *command):
    done = discreet(folder, *command)
    assert done.returncode == 0, (command, done.stderr, done.stdout)
    return done.stdout


def governed(folder):
    """Keys, 12 signed contributions, statements, and a ledger after two epochs of a run."""
    hospital = json.loads(must(folder, "keygen", "hospital", "--json"))
    ward = json.loads(must(folder, "keygen", "ward", "--json"))
    for name in ["steward", "release"]:
        must(folder, "keygen", name)
    lines = [f"{(i % 2) * 2 - 1 + i / 50:.3f},{i / 10:.3f},{'ab'[i % 2]}" for i in range(20)]
    (folder / "notes.csv").write_text("x,y,kind\n" + "\n".join(lines) + "\n")
    (folder / "policy.yaml").write_text(POLICY.format(key=hospital["public_key"]))
    (folder / "train.yaml").write_text(CONFIG.format(at=AT))
    rows = "".join(f"p{i},open,{hashlib.sha256(line.encode()).hexdigest()},{NOW.tm_year}-01-01T00:00:00Z,"
                   f"{NOW.tm_year + 1}-02-01T00:00:00Z\n" for i, line in enumerate(lines[:12]))
    (folder / "batch.csv").write_text("contributor,class,anchor,not_before,not_after\n" + rows)
    must(folder, "attest", "--key", "hospital.key", "--policy", "policy.yaml", "--batch", "batch.csv", "--out",
         "anchors.jsonl")
    (folder / "fresh").mkdir()
    for file in [*folder.glob("*.*")]:
        shutil.copy2(file, folder / "fresh")
    must(folder, *TRAIN)
    shutil.copy(folder / "run" / "ledger.note", folder / "kept.note")
    origin = (folder / "kept.note").read_text().splitlines()[0]
    for line in (folder / "anchors.jsonl").read_text().splitlines()[:2]:
        must(folder, "withdraw", json.loads(line)["descriptor_hash"], "--origin", origin, "--key", "hospital.key",
             "--events", "events.jsonl")
    leaver = json.loads(must(folder, "keygen", "first", "--json"))
    must(folder, "keygen", "--revoke", leaver["id"], "--key", "first.key", "--statements", "statements.jsonl")
    (folder / "ids").write_text(json.dumps({"ward": ward["id"], "origin": origin,
                                            "third": json.loads(line)["descriptor_hash"]}))
    return folder


def unlearning(folder, engine="exact"):
    """A store with 60 records of 30 subjects, one deleted."""
    options = {"exact": ["--records", "1000", "--lambda", "0.01"], "erm": ["--records", "1000", "--lambda", "0.01"],
               "stream": ["--lambda", "0.1", "--events", "2000", "--calibration", "20", "--gamma-learn", "2"]}
    must(folder, "unlearn", "init", "model", "--engine", engine, "--dimension", "2", *options[engine])

    def rows(name, begin, end):
        body = "".join(f"person-{i},{(i % 7) / 10 - .3},{(i % 5) / 10 - .2},{1 if i % 7 > i % 5 else -1}\n"
                       for i in range(begin, end))
        (folder / name).write_text("subject,a,b,label\n" + body)

    rows("first.csv", 0, 60)
    rows("more.csv", 100, 120)
    must(folder, "unlearn", "insert", "model", "first.csv", "--request", "first")
    must(folder, "unlearn", "delete", "model", "--subject", "person-1", "--request", "one", "--receipts",
         "receipts.jsonl")
    return folder


def copy_of(world, folder):
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cp", "-a", str(world), str(folder)], check=True)
    return folder


def verified(folder, ledger, *more):
    done = discreet(folder, "ledger", "verify", ledger, "--json", "--no-attestations", *more)
    return json.loads(done.stdout)


__all__ = ["Small", "TRAIN", "copy_of", "faults", "governed", "must", "pathlib", "unlearning", "verified"]
