"""A disk that is full, over quota or read-only, a limit of file sizes, and a lack of memory, at every call.

The command ends with status 3 and one line, never by a signal; the last good state is there, and the same command completes
the work once the fault is gone. Samples in `make test`; with the marker slow, every call (memory: the first 2,000, and a
sample of the others).
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess

import faults
import pytest
from faults import run
from worlds import TRAIN, copy_of, governed, must, unlearning, verified

ERRORS = ["ENOSPC", "EDQUOT", "EROFS", "EFBIG", "EIO"]

ATTEST = ["attest", "--key", "hospital.key", "--class", "open", "--payload", "notes.csv", "--clip-norm", "1",
          "--noise-multiplier", "1", "--occurrences", "2", "--not-before", "2026-01-01", "--not-after", "2027-01-01",
          "--corpus", "notes", "--contributor", "x", "--out", "anchors.jsonl", "--append"]
WITHDRAW = ["withdraw", "--ledger", "ledger.db", "--key", "steward.key", "--events", "events.jsonl"]
RELEASE = ["release", "run", "--key", "release.key", "--ledger-key", "steward.key", "--ledger", "ledger.db"]
DELETE = ["unlearn", "delete", "model", "--subject", "person-7", "--request", "two", "--receipts", "receipts.jsonl"]
INSERT = ["unlearn", "insert", "model", "more.csv", "--request", "more"]
READERS = {  # command: the folder it reads in
    "account": ["account", "--sampling-rate", "0.01", "--noise-multiplier", "1", "--steps", "1000", "--delta", "1e-5"],
    "check": ["check", "train.yaml"],
    "verify": ["ledger", "verify", "ledger.db", "--public-key", "steward.pub"],
    "show": ["ledger", "show", "ledger.db"],
    "gate": ["gate", "run/release.json", "--public-key", "release.pub", "--ledger", "ledger.db", "--ledger-key",
             "steward.pub"],
}
WRITERS = {"train": TRAIN, "attest": ATTEST, "withdraw": WITHDRAW, "release": RELEASE, "delete": DELETE, "insert": INSERT}


@pytest.fixture(scope="module")
def worlds(memory):
    """The folder in which each command is run."""
    corpus, store = memory / "faulty-corpus", memory / "faulty-store"
    corpus.mkdir()
    store.mkdir()
    governed(corpus)
    unlearning(store)
    (memory / "faulty-released").mkdir()
    released = copy_of(corpus, memory / "faulty-released")
    must(released, *RELEASE)
    return dict.fromkeys(READERS, released) | {"train": corpus / "fresh", "attest": corpus, "withdraw": corpus,
                                                  "release": corpus, "delete": store, "insert": store}


def require_clear(done, *where):
    """Status 3 and a sentence; or, if the fault was absorbed, 0."""
    if done.returncode == 0:
        return
    last = done.stderr.strip().splitlines()[-1:]
    assert done.returncode == 3 and last and last[0].startswith("error: IO_ERROR: "), (where, done.returncode, done.stderr)


def require_whole(folder, name, *where):
    """The same command completes the work, and what it changed verifies."""
    command = WRITERS[name]
    if name == "train" and (folder / "run").exists():
        command = [*command, "--resume"]
    must(folder, *command)
    ledger = folder / "model" / "ledger.db" if name in ("delete", "insert") else folder / "ledger.db"
    found = verified(folder, ledger)
    assert found["verified"], (where, found)
    if name == "withdraw":
        assert found["counts"]["withdrawals"] == 2, where
    if name == "delete":
        assert found["counts"]["deletions"] == 2, where
    if name == "train":
        # A run that released nothing starts again; the epoch that it had reserved stays in the ledger.
        assert found["counts"]["epochs"] in [2, 3], where
    for file in ["anchors.jsonl", "receipts.jsonl"]:
        if (folder / file).exists():
            for line in (folder / file).read_text().splitlines():
                json.loads(line)


whole_too = pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])


@whole_too
def test_a_disk_that_takes_no_more(worlds, fast, whole):
    faulted = 0
    for name, command in WRITERS.items():
        writes = faults.counts(copy_of(worlds[name], fast / "count"), command)[0]
        calls = range(1, writes + 1) if whole else random.Random(name).sample(range(1, writes + 1), min(writes, 6))
        for n in calls:
            for kind in ERRORS if whole else [ERRORS[n % len(ERRORS)]]:
                folder = copy_of(worlds[name], fast / "faulty")
                done = run(folder, command, write=n, kind=kind)
                require_clear(done, name, n, kind)
                faulted += done.returncode == 3
                if done.returncode == 3 and (not whole or n % 3 == 0):
                    require_whole(folder, name, n, kind)
    print(f"{faulted} commands met a disk that takes no more")
    assert faulted > (1000 if whole else 25)


def test_a_key_pair_is_written_whole_or_not_at_all(worlds, fast):
    command = ["keygen", "new", "--rotate", "ward.key", "--statements", "statements.jsonl"]
    writes = faults.counts(copy_of(worlds["attest"], fast / "count"), command)[0]
    for n in range(1, writes + 1):
        folder = copy_of(worlds["attest"], fast / "faulty")
        before = (folder / "statements.jsonl").read_bytes()
        done = run(folder, command, write=n, kind="ENOSPC")
        require_clear(done, n)
        if done.returncode == 3:
            # A rotation names the new key, so it is never left without it. If only the folder was not flushed, all is there.
            recorded = (folder / "statements.jsonl").read_bytes() != before
            assert sorted(path.name for path in folder.glob("*new*")) == (["new.key", "new.pub"] if recorded else []), n
            if not recorded:
                must(folder, *command)
    assert writes > 4


@whole_too
def test_a_limit_of_file_sizes(worlds, fast, whole):
    for name, command in WRITERS.items():
        for size in range(0, 60000, 1500) if whole else [0, 3000, 20000]:
            folder = copy_of(worlds[name], fast / "faulty")

            def limit(size=size):
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

            done = subprocess.run([os.environ["DISCREET"], *command], cwd=folder, capture_output=True, text=True,
                                  preexec_fn=limit)
            require_clear(done, name, size)
            if done.returncode == 3:
                require_whole(folder, name, size)


@whole_too
def test_no_memory(worlds, fast, whole):
    """The n-th allocation fails, alone or with all that follow."""
    failed = 0
    for name, command in (READERS | WRITERS).items():
        folder = copy_of(worlds[name], fast / "faulty")
        total = faults.counts(folder, command)[1]
        draw = random.Random(name)
        if whole:  # the first 2,000 are the same for every command: its options are set up
            first = range(1, 2001) if name == "account" else range(1, 2001, 20)
            places = [*first, *(draw.randrange(2001 + (total - 2001) * i // 400, 2001 + (total - 2001) * (i + 1) // 400)
                                for i in range(400))]
        else:
            places = sorted(draw.sample(range(1, total), 6))
        expected = None
        for n in places:
            for onward in [False, True] if whole else [n % 2 == 0]:
                if name in WRITERS:
                    folder = copy_of(worlds[name], fast / "faulty")
                done = run(folder, command, alloc=n, onward=onward)
                require_clear(done, name, n, onward)
                failed += done.returncode == 3
                if done.returncode == 0 and name in READERS and name != "check":
                    expected = expected or must(folder, *command)
                    assert done.stdout == expected, (name, n, onward)
                if done.returncode == 3 and name in WRITERS and (not whole or n % 16 == 0):
                    require_whole(folder, name, n, onward)
    print(f"{failed} commands found no memory")
    assert failed > (5000 if whole else 40)


def test_a_read_only_ledger_is_read(worlds, fast):
    folder = copy_of(worlds["verify"], fast / "faulty")
    before = (folder / "ledger.db").read_bytes()
    for name in ["verify", "show", "gate"]:
        done = run(folder, READERS[name], write=1, kind="EROFS")
        assert done.returncode == 0, (name, done.stderr)
    assert (folder / "ledger.db").read_bytes() == before
    shutil.rmtree(folder)
