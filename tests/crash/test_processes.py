"""Two to eight processes on one file: every write that was acknowledged is there, and none is damaged."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from worlds import copy_of, governed, must, unlearning, verified

several = pytest.mark.parametrize("processes", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in [2, 3, 5, 6, 7, 8])])


@pytest.fixture(scope="module")
def corpus(memory):
    (memory / "shared-corpus").mkdir()
    return governed(memory / "shared-corpus")


def together(folder, commands, processes):
    """Runs them, so many at a time; which of them ended well. Others must say that the file is in use."""

    def one(command):
        done = subprocess.run([os.environ["DISCREET"], *command], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0 or (done.returncode == 3 and "error: IO_ERROR" in done.stderr), done.stderr
        return done.returncode == 0

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(one, commands))


@several
def test_one_statements_file(corpus, fast, processes):
    folder = copy_of(corpus, fast / "world")
    ward = json.loads((folder / "ids").read_text())["ward"]
    before = (folder / "statements.jsonl").read_text().splitlines()
    done = together(folder, [["keygen", "--revoke", ward, "--key", "ward.key", "--statements", "statements.jsonl"]
                             for _ in range(6 * processes)], processes)
    lines = (folder / "statements.jsonl").read_text().splitlines()
    assert all(done) and lines[:len(before)] == before and len(lines) == len(before) + len(done)
    assert all("statement" in json.loads(line) for line in lines)


@several
def test_one_ledger(corpus, fast, processes):
    """Each process withdraws one contribution; the run's epochs continue at the same time."""
    folder = copy_of(corpus, fast / "world")
    origin = json.loads((folder / "ids").read_text())["origin"]
    hashes = [json.loads(line)["descriptor_hash"] for line in (folder / "anchors.jsonl").read_text().splitlines()]
    commands = []
    for i, descriptor in enumerate(hashes):
        must(folder, "withdraw", descriptor, "--origin", origin, "--key", "hospital.key", "--events", f"event-{i}")
        commands.append(["withdraw", "--ledger", "ledger.db", "--key", "steward.key", "--events", f"event-{i}"])
    commands[3:3] = [["release", "run", "--key", "release.key", "--ledger-key", "steward.key", "--ledger", "ledger.db",
                      "--out", f"release-{i}.json"] for i in range(2)]
    done = together(folder, commands, processes)
    assert all(done)
    found = verified(folder, "ledger.db", "--checkpoint", "kept.note")
    assert found["verified"], found
    assert found["counts"]["withdrawals"] == len(hashes) and found["counts"]["releases"] == 2


@several
def test_one_store_of_uses(corpus, fast, processes):
    """Runs of one corpus, side by side: each reserves its uses, and the ledger has every epoch of every run."""
    folder = copy_of(corpus / "fresh", fast / "world")
    must(folder, "train", "train.yaml", "--out", "first", "--threads", "1")
    done = together(folder, [["train", "train.yaml", "--out", f"run-{i}", "--threads", "1"] for i in range(processes)],
                    processes)
    assert sum(done) >= 1
    found = verified(folder, "ledger.db")
    assert found["verified"], found
    # A run that could not get at the ledger in time says so and may have reserved an epoch.
    assert found["counts"]["epochs"] >= 2 * (1 + sum(done)) and found["counts"]["epochs"] <= 2 * (1 + processes)
    import sqlite3
    uses = sqlite3.connect(folder / "corpus.uses")
    assert uses.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    granted = dict(uses.execute("SELECT contribution, sum(uses) FROM reservations WHERE granted = 1 GROUP BY 1"))
    assert granted == {c: used for c, used in uses.execute("SELECT contribution, used FROM contributions") if used}
    assert uses.execute("SELECT max(used - cap) FROM contributions").fetchone()[0] <= 0
    uses.close()


@several
def test_one_unlearning_store(fast, processes):
    """One process at a time has the store; the others say so, and succeed when they ask again."""
    (fast / "world").mkdir()
    folder = unlearning(fast / "world")
    commands = [["unlearn", "delete", "model", "--subject", f"person-{i}", "--request", f"d{i}", "--receipts",
                 "receipts.jsonl"] for i in range(2, 2 + 2 * processes)]
    asked, acknowledged = list(commands), []
    for _ in range(200):
        done = together(folder, asked, processes)
        acknowledged += [command[4] for command, ok in zip(asked, done) if ok]
        status = json.loads(must(folder, "unlearn", "status", "model", "--json"))
        assert status["deletions"] == 1 + len(acknowledged)
        asked = [command for command, ok in zip(asked, done) if not ok]
        if not asked:
            break
    assert not asked
    found = verified(folder / "model", "ledger.db")
    assert found["verified"] and found["counts"]["deletions"] == 1 + len(commands)
    receipts = [json.loads(line)["opening"]["subject"] for line in (folder / "receipts.jsonl").read_text().splitlines()]
    assert sorted(receipts) == sorted(["person-1", *acknowledged])
