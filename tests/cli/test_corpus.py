"""Signed contributions end to end: keygen, attest, train; what is refused never reaches a batch."""

import csv
import hashlib
import json
import random
import sqlite3
import stat

import pytest
import safetensors.numpy
from command import discreet

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
  at: 2026-11-16T00:00:00Z
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
            CONFIG.format(steps=steps, ghost=ghost, injection=injection)
        )
        batch = "contributor,class,anchor,not_before,not_after\n"
        for i, line in enumerate(lines[:attested]):
            kind = "clinical" if i % 2 else "open"
            anchor = hashlib.sha256(line.encode()).hexdigest()
            batch += f"p{i},{kind},{anchor},2026-01-01T00:00:00Z,2027-01-01T00:00:00Z\n"
        (tmp_path / "batch.csv").write_text(batch)
        done = discreet(
            "attest", "--key", "hospital.key", "--policy", "policy.yaml", "--batch", "batch.csv",
            "--out", "anchors.jsonl", cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return tmp_path

    return make


def train(folder, out, *more):
    return discreet("train", "train.yaml", "--out", out, "--json", *more, cwd=folder)


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


def weights(folder, out):
    return safetensors.numpy.load_file(folder / out / "model.safetensors")


@pytest.mark.parametrize("ghost", ["true", "false"])
def test_a_signed_corpus_trains_and_says_what_it_admitted(corpus, ghost):
    folder = corpus(ghost=ghost)
    done = train(folder, "run")
    assert done.returncode == 0, done.stderr
    said = header(folder, "run")
    assert said["admitted"] == 100 and said["refused"] == {}
    assert {c["class"]: c["contributions"] for c in said["classes"]} == {"clinical": 50, "open": 50}
    for c in said["classes"]:
        # sqrt(k) z, and with it no more than one Gaussian release of multiplier z.
        k, z = (6, 1) if c["class"] == "clinical" else (20, 0.4)
        assert c["noise_multiplier"] >= k**0.5 * z
        assert c["gdp_mu"] == pytest.approx(1 / z)
        assert c["adjacency"] == "zero_out" and c["accountant"] == "rdp"
    assert stat.S_IMODE((folder / "corpus.uses").stat().st_mode) == 0o600


def test_what_is_refused_is_in_no_batch(corpus):
    """The canary: 40 records without attestation, and then without these records at all."""
    folder = corpus(attested=60)
    (folder / "train.yaml").write_text(
        (folder / "train.yaml").read_text().replace("adjacency: zero_out", "adjacency: zero_out\n    secure: false\n    seed: 7")
    )
    done = train(folder, "run")
    assert done.returncode == 0, done.stderr
    said = header(folder, "run")
    assert said["admitted"] == 60
    assert said["refused"] == {"NO_ATTESTATION": 40}
    assert "40 NO_ATTESTATION" in done.stdout + done.stderr
    lines = (folder / "notes.csv").read_text().splitlines()
    (folder / "notes.csv").write_text("\n".join(lines[:61]) + "\n")
    (folder / "corpus.uses").unlink()
    (folder / "ledger.db").unlink()
    assert train(folder, "without").returncode == 0
    for name, values in weights(folder, "run").items():
        assert (values == weights(folder, "without")[name]).all(), name


def test_an_altered_record_is_no_longer_the_contribution_that_was_signed(corpus):
    folder = corpus()
    text = (folder / "notes.csv").read_text().splitlines()
    text[5] = "4,4,4,a"
    (folder / "notes.csv").write_text("\n".join(text) + "\n")
    done = train(folder, "run")
    assert done.returncode == 0, done.stderr
    assert header(folder, "run")["refused"] == {"NO_ATTESTATION": 1}


def test_uses_are_counted_over_all_runs_and_never_pass_the_cap(corpus):
    folder = corpus(uses=3)
    for out in ["one", "two", "three"]:
        done = train(folder, out)
        assert done.returncode == 0, done.stderr
    admitted = discreet("admit", "policy.yaml", "anchors.jsonl", "--at", "2026-11-16T00:00:00Z",
                        "--uses", "corpus.uses", "--json", cwd=folder)
    contributions = json.loads(admitted.stdout)["contributions"]
    exhausted = [c for c in contributions if c.get("refusal") == "USES_EXHAUSTED"]
    # 36 steps at rate 0.2: about 7 uses of each wanted, 3 allowed to clinical records, 20 to others.
    assert len(exhausted) >= 45 and {c["class"] for c in exhausted} <= {"clinical", "open"}
    assert sum(c["class"] == "clinical" for c in exhausted) >= 45
    # Nothing public tells: the trace of the last run speaks of admission only.
    assert header(folder, "three")["refused"] == {}


def test_a_run_that_is_executed_again_uses_nothing_twice(corpus):
    folder = corpus(uses=3, steps=6)
    assert train(folder, "run").returncode == 0
    before = used(folder)
    again = discreet("replay", "run", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert used(folder) == before


@pytest.mark.parametrize("injection", ["per_microbatch", "per_sample"])
def test_noise_may_be_injected_in_slots(corpus, injection):
    folder = corpus(injection=injection, steps=3)
    done = train(folder, "run")
    assert done.returncode == 0, done.stderr


def test_a_section_that_does_not_fit_is_refused_and_leaves_nothing(corpus):
    folder = corpus()
    good = (folder / "train.yaml").read_text()
    for old, new, says in [
        ("adjacency: zero_out", "adjacency: add_remove", "adjacency"),
        ("  at: 2026-11-16T00:00:00Z\n", "", "corpus.at"),
        ("at: 2026-11-16", "at: 2036-11-16", "OUTSIDE_VALIDITY"),
        ("  test: test.csv", "  holdout: 0.2", "holdout"),
        ("  uses: corpus.uses\n", "", "corpus.uses"),
        ("  ledger_key: steward.key\n", "", "discreet keygen steward"),
    ]:
        assert old in good
        (folder / "train.yaml").write_text(good.replace(old, new))
        done = train(folder, "run")
        assert done.returncode not in (0, 139), (new, done.stdout)
        assert says in done.stderr + done.stdout
        assert not (folder / "run").exists() or not list((folder / "run").iterdir())
