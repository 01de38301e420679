"""Killed at every call that changes a file: before it, after it, and in the middle of a write.

What was acknowledged is there, nothing is half written, and the same command completes the work. Each test takes a sample of
the kills; with the marker slow, all of them.
"""

import json
import shutil

import faults
import pytest
from faults import KILLED, KILLS, discreet, run
from worlds import TRAIN, Small, copy_of, governed, must, unlearning, verified

SOME = 40  # kills of each kind of work in `make test`
LEAST = 500  # and in the whole


@pytest.fixture(scope="module")
def corpus(memory):
    (memory / "corpus").mkdir()
    return governed(memory / "corpus")


@pytest.fixture(scope="module")
def store(memory):
    (memory / "unlearn").mkdir()
    return unlearning(memory / "unlearn")


def instants(works, whole):
    """(work, call, kind) of every kill, or of a sample that is spread over them."""
    every = [(work, n, kind) for work, writes in works for n in range(1, writes + 1) for kind in KILLS]
    if whole:
        return every
    step = max(1, len(every) // (SOME + 8))  # a few come after the last write: how many SQLite makes varies
    return every[step // 2::step]


def told(name, kills, whole):
    print(f"{name}: {kills} kills, nothing lost")
    assert kills >= (LEAST if whole else SOME)


both = pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


@both
def test_statements(corpus, fast, whole):
    ids = json.loads((corpus / "ids").read_text())
    attest = ["attest", "--key", "hospital.key", "--class", "open", "--payload", "notes.csv", "--clip-norm", "1",
              "--noise-multiplier", "1", "--occurrences", "2", "--not-before", "2026-01-01", "--not-after",
              "2027-01-01", "--corpus", "notes", "--out", "anchors.jsonl", "--append"]
    # More lines make longer files, and other places for a write to be cut.
    works = [("statements.jsonl", ["keygen", "--revoke", ids["ward"], "--key", "ward.key", "--statements",
                                   "statements.jsonl"]),
             ("events.jsonl", ["withdraw", ids["third"], "--origin", ids["origin"], "--key", "hospital.key",
                               "--events", "events.jsonl"]),
             ("new.jsonl", ["keygen", "--revoke", ids["ward"], "--key", "ward.key", "--statements",
                            "new.jsonl"]),
             *(("anchors.jsonl", [*attest, "--contributor", f"p{i}" + "x" * (8 * i)]) for i in range(1 + 27 * whole))]
    counted = [(work, faults.counts(copy_of(corpus, fast / "count"), work[1])[0]) for work in works]
    kills = 0
    for (file, command), n, kind in instants(counted, whole):
        folder = copy_of(corpus, fast / "killed")
        before = lines(folder / file)
        assert run(folder, command, write=n, kind=kind).returncode == KILLED, (command, n, kind)
        kills += 1
        after = lines(folder / file)
        assert after[:len(before)] == before and len(after) <= len(before) + 1, (command, n, kind)
        assert all(isinstance(json.loads(line), dict) for line in after)
        must(folder, *command)
        done = lines(folder / file)
        assert done[:len(after)] == after and len(done) == len(after) + 1
        must(folder, "admit", "policy.yaml", "fresh/anchors.jsonl", "--statements", "statements.jsonl")
    told("statements", kills, whole)


@both
def test_ledger_writes(corpus, fast, whole):
    consume = ["withdraw", "--ledger", "ledger.db", "--key", "steward.key", "--events", "events.jsonl"]
    export = ["ledger", "export", "ledger.db", "--key", "steward.key", "--receipts", "receipts.jsonl"]
    release = ["release", "run", "--key", "release.key", "--ledger-key", "steward.key", "--ledger", "ledger.db"]
    works = [consume, release] + ([[*consume, "--bundles", "."], export] if whole else [])
    counted = [(work, faults.counts(copy_of(corpus, fast / "count"), work)[0]) for work in works]
    fresh = copy_of(corpus / "fresh", fast / "fresh-count")
    counted.append((TRAIN, faults.counts(fresh, TRAIN)[0]))
    expected = verified(fresh, "ledger.db")["counts"]
    before = verified(corpus, "ledger.db")["counts"]["releases"]
    kills = tails = 0
    for command, n, kind in instants(counted, whole):
        training = command == TRAIN
        folder = copy_of(corpus / "fresh" if training else corpus, fast / "killed")
        kept = [] if training else ["--checkpoint", "kept.note"]
        ended = run(folder, command, write=n, kind=kind)
        if ended.returncode == 0:  # the number of pages that SQLite writes varies a little
            continue
        assert ended.returncode == KILLED, (command, n, kind, ended.stderr)
        kills += 1
        # A reader sees a sound ledger, one with a tail that is not signed yet, or the middle of a commit.
        if (folder / "ledger.db").exists() and not (folder / "ledger.db-journal").exists():
            found = verified(folder, "ledger.db", *kept)
            assert found["verified"] or found["kind"] == "unsigned", (command, n, kind, found)
            tails += not found["verified"]
        again = [*command, "--resume"] if training and (folder / "run").exists() else command
        must(folder, *again)
        found = verified(folder, "ledger.db", *kept)
        assert found["verified"], (command, n, kind, found)
        if training:
            counts = {what: found["counts"][what] for what in ["admissions", "uses", "epochs", "refusals"]}
            assert counts == {what: expected[what] for what in counts}, (n, kind)
        elif command[0] == "withdraw":
            assert found["counts"]["withdrawals"] == 2, (n, kind)
        elif command[0] == "release":
            assert found["counts"]["releases"] - before in (1, 2), (n, kind)
        for line in lines(folder / "receipts.jsonl"):
            assert "receipt" in json.loads(line)
    print(f"{tails} left entries that were not signed yet")
    told("ledger", kills, whole)


@both
def test_unlearning(store, fast, whole):
    works = [["unlearn", "delete", "model", "--subject", "person-7", "--request", "two", "--receipts",
              "receipts.jsonl"],
             ["unlearn", "insert", "model", "more.csv", "--request", "more"]]
    if whole:
        works += [["unlearn", "publish", "model"], ["unlearn", "retrain", "model"],
                  ["unlearn", "delete", "model", *(f"--subject=person-{i}" for i in range(20, 40)), "--request", "many",
                   "--receipts", "receipts.jsonl"]]
    counted, expected = [], {}
    for work in works:
        folder = copy_of(store, fast / "count")
        counted.append((work, faults.counts(folder, work)[0]))
        expected[str(work)] = json.loads(must(folder, "unlearn", "status", "model", "--json"))
    kills = 0
    for command, n, kind in instants(counted, whole):
        folder = copy_of(store, fast / "killed")
        assert run(folder, command, write=n, kind=kind).returncode == KILLED, (command, n, kind)
        kills += 1
        must(folder, *command)
        status = json.loads(must(folder, "unlearn", "status", "model", "--json"))
        for what in ["live", "deletions", "receipts_to_confirm"]:
            assert status[what] == expected[str(command)][what], (command, n, kind)
        found = verified(folder / "model", "ledger.db")
        assert found["verified"] and found["counts"]["deletions"] == status["deletions"], (command, n, kind)
        receipts = [json.loads(line)["opening"]["subject"] for line in lines(folder / "receipts.jsonl")]
        assert receipts.count("person-1") == 1
        if "two" in command:
            assert "person-7" in receipts
    told("unlearning", kills, whole)


@both
def test_training(fast, whole):
    steps = "target_steps=80" if whole else "target_steps=20"
    small = Small(fast)
    command = ["train", "train.yaml", "--threads", "1", "--set", steps]
    assert discreet(fast, *command, "--out", "whole").returncode == 0
    expected = small.bytes_of("whole")

    def begun():
        shutil.rmtree(fast / "killed", ignore_errors=True)
        small.share_secret("whole", "killed")

    resume = [*command, "--out", "killed", "--resume"]
    begun()
    writes = faults.counts(fast, resume)[0]
    kills = 0
    for work, n, kind in instants([(resume, writes)], whole):
        begun()
        assert run(fast, work, write=n, kind=kind).returncode == KILLED, (n, kind)
        kills += 1
        must(fast, *work)
        assert small.bytes_of("killed") == expected, (n, kind)
    told("training", kills, whole)
