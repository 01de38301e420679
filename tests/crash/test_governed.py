"""A run on signed contributions that is killed or out of disk: its ledger has every epoch once."""

import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from corpora import corpus  # noqa: E402, F401

KILLS = 50


def command(folder, *more):
    return [os.environ["DISCREET"], "train", "train.yaml", "--out", "run", "--threads", "1", *more]


def verify(folder, *more):
    done = subprocess.run([os.environ["DISCREET"], "ledger", "verify", "ledger.db", "--json", "--no-attestations",
                           *more], cwd=folder, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.fixture
def folder(corpus):  # noqa: F811
    """20 epochs of 5 steps, 100 contributions."""
    made = corpus(uses=6, steps=100, attested=95)
    config = (made / "train.yaml").read_text() + "run: {checkpoint_every: 7}\n"
    (made / "train.yaml").write_text(config)
    return made


def clear(folder):
    shutil.rmtree(folder / "run", ignore_errors=True)
    for file in [*folder.glob("ledger.db*"), *folder.glob("corpus.uses*")]:
        file.unlink()


def test_killed_at_fifty_random_moments_its_ledger_is_that_of_a_whole_run(folder):
    begin = time.monotonic()
    done = subprocess.run(command(folder), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seconds = time.monotonic() - begin
    expected = verify(folder)["counts"]
    assert expected["epochs"] == 20 and expected["uses"] == 20 * 95 and expected["refusals"] == 5
    draw = random.Random(11)
    kills = tails = 0
    while kills < KILLS:
        clear(folder)
        last = None
        for _ in range(draw.randint(1, 6)):
            resume = ["--resume"] if (folder / "run").exists() else []
            process = subprocess.Popen(command(folder, *resume), cwd=folder, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            time.sleep(draw.uniform(0, seconds))
            process.kill()
            if process.wait() != -signal.SIGKILL:
                continue
            kills += 1
            # Everything that was signed is there, and extends every note that the run has kept.
            if not (folder / "ledger.db").exists():
                continue
            note = folder / "run" / "ledger.note"
            found = verify(folder, *(["--checkpoint", "run/ledger.note"] if note.exists() else []))
            assert found["verified"] or found["kind"] == "unsigned", found
            tails += not found["verified"]
            if found["verified"]:
                assert last is None or found["counts"]["epochs"] >= last
                last = found["counts"]["epochs"]
        resume = ["--resume"] if (folder / "run").exists() else []
        done = subprocess.run(command(folder, *resume), cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found = verify(folder, "--checkpoint", "run/ledger.note")
        assert found["verified"], found
        counts = found["counts"]
        for what in ["admissions", "uses", "epochs", "refusals"]:
            assert counts[what] == expected[what], what
    print(f"{kills} kills, {tails} left entries that were not signed yet")


def test_a_full_disk_is_said_and_leaves_the_ledger_whole(folder):
    subprocess.run(command(folder, "--set", "target_steps=5"), cwd=folder, capture_output=True, check=True)
    size = (folder / "ledger.db").stat().st_size
    shutil.rmtree(folder / "run")

    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 6000, size + 6000))

    done = subprocess.run(command(folder), cwd=folder, capture_output=True, text=True, preexec_fn=small)
    assert done.returncode == 3, (done.returncode, done.stderr)
    assert done.stderr.strip().splitlines()[-1].startswith("error: IO_ERROR")
    found = verify(folder)
    assert found["verified"] or found["kind"] == "unsigned", found
    resume = ["--resume"] if (folder / "run").exists() else []
    done = subprocess.run(command(folder, *resume), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = verify(folder, "--checkpoint", "run/ledger.note")
    assert found["verified"] and found["counts"]["epochs"] == 21
