"""A run that is killed, interrupted or out of disk continues bit for bit; what differs is rejected."""

import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
from small_run import Small, write_csv

KILLS = 50


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    small = Small(tmp_path_factory.mktemp("runs"))
    begin = time.monotonic()
    result = small.train("whole")
    assert (result.returncode, result.stderr.count("epoch")) == (0, 15), result.stderr
    small.seconds = time.monotonic() - begin
    return small


def fresh(small, name):
    shutil.rmtree(small.folder / name, ignore_errors=True)
    small.share_secret("whole", name)


def test_killed_at_fifty_random_moments_and_resumed_is_the_same_run(reference):
    draw = random.Random(7)
    expected = reference.bytes_of("whole")
    kills, trial = 0, 0
    while kills < KILLS:
        trial += 1
        fresh(reference, "killed")
        for _ in range(draw.randint(1, 4)):
            process = reference.start("killed", "--resume")
            time.sleep(draw.uniform(0, 0.9 * reference.seconds))
            process.kill()
            if process.wait() == -signal.SIGKILL:
                kills += 1
        result = reference.train("killed", "--resume")
        assert result.returncode == 0, result.stderr
        assert reference.bytes_of("killed") == expected, f"trial {trial}"
        assert "resumed" not in (reference.folder / "killed" / "trace.jsonl").read_text()


def test_killed_before_its_first_files_it_can_be_begun_again(reference):
    draw = random.Random(8)
    for _ in range(10):
        run = reference.folder / "early"
        shutil.rmtree(run, ignore_errors=True)
        process = reference.start("early")
        time.sleep(draw.uniform(0, 0.15 * reference.seconds))
        process.kill()
        process.wait()
        result = reference.train("early", *(["--resume"] if run.exists() else []), "--json")
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["steps"] == 150


def test_interrupt_finishes_the_step_and_says_what_holds(reference):
    fresh(reference, "stopped")
    process = subprocess.Popen(reference.command("stopped", "--resume"), stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    deadline = time.monotonic() + 20
    while b'"iter"' not in read(reference.folder / "stopped" / "trace.jsonl"):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    output = process.communicate()[0]
    assert process.returncode == 0
    assert "interrupted; resume with: discreet train" in output
    assert "planned steps or the budget" in output
    end = json.loads(read(reference.folder / "stopped" / "trace.jsonl").splitlines()[-1])
    whole = json.loads(read(reference.folder / "whole" / "trace.jsonl").splitlines()[-1])
    assert (end["kind"], end["ended"]) == ("run_end", "interrupted")
    assert end["steps"] < 150
    assert whole["epsilon"]["upper"] <= end["epsilon"]["upper"] <= 50
    assert reference.train("stopped", "--resume").returncode == 0
    assert reference.bytes_of("stopped") == reference.bytes_of("whole")


def read(path):
    return path.read_bytes() if path.exists() else b""


def test_full_disk_is_status_3_and_the_run_goes_on_afterwards(reference):
    for size in [4000, 20000, 60000, 120000]:
        fresh(reference, "full")

        def limit(size=size):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        result = reference.train("full", "--resume", preexec_fn=limit)
        assert result.returncode == 3, (size, result.stderr)
        assert result.stderr.splitlines()[-1].startswith("error: IO_ERROR: ")
        assert reference.train("full", "--resume").returncode == 0
        assert reference.bytes_of("full") == reference.bytes_of("whole")


def test_read_only_directory_is_refused(monkeypatch):
    """To root nothing is read-only, so another user runs a copy of the command outside root's home."""
    other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setenv("DISCREET", shutil.copy(os.environ["DISCREET"], folder))
        small = Small(pathlib.Path(folder))
        (small.folder / "run").mkdir(mode=0o555)
        result = small.train("run", "--resume", **other)
        assert (result.returncode, result.stdout) == (3, "")
        assert result.stderr.startswith("error: IO_ERROR: cannot write in ")
        assert not any((small.folder / "run").iterdir())


def refused(reference, *args):
    before = reference.bytes_of("refused")
    result = reference.train("refused", "--resume", *args)
    assert result.returncode == 2
    assert reference.bytes_of("refused") == before
    return result.stderr


def test_what_differs_is_refused_before_anything_is_computed(reference):
    folder = reference.folder
    shutil.rmtree(folder / "refused", ignore_errors=True)
    shutil.copytree(folder / "whole", folder / "refused")
    # More budget, more steps, other noise.
    error = refused(reference, "--set", "target_epsilon=60", "--set", "target_steps=160")
    assert "target_epsilon was 50.0 and is 60.0" in error
    assert "target_steps was 150 and is 160" in error
    assert "noise_multiplier" in refused(reference, "--set", "noise_multiplier=2")
    # Other data.
    write_csv(folder / "train.csv", 400, 3)
    try:
        assert "the data differ from those" in refused(reference)
    finally:
        write_csv(folder / "train.csv", 400, 1)
    # A checkpoint of another run.
    assert reference.train("other").returncode == 0
    shutil.copy(folder / "other" / "checkpoint.cbor", folder / "refused" / "checkpoint.cbor")
    assert "seal is not that of this run" in refused(reference)


def test_another_blas_kernel_charges_again_from_fresh_randomness(reference):
    """The bits may differ, so the steps since the checkpoint are not repeated but paid again."""
    fresh(reference, "moved")
    process = reference.start("moved", "--resume")
    trace = reference.folder / "moved" / "trace.jsonl"
    while read(trace).count(b'"iter"') < 25:
        time.sleep(0.001)
    process.kill()
    process.wait()
    before = [json.loads(line) for line in read(trace).split(b"\n")[:-1]]
    released = sum(line["kind"] == "iter" for line in before)
    core = "Nehalem" if "Haswell" in before[0]["environment"]["blas"] else "Haswell"
    result = reference.train("moved", "--resume", "--json",
                             env=os.environ | {"OPENBLAS_CORETYPE": core})
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in read(trace).splitlines()]
    assert lines[:len(before)] == before
    resumed = [line for line in lines if line["kind"] == "resumed"]
    assert len(resumed) == 1
    assert resumed[0]["released"] == released
    assert resumed[0]["charged_again"] == released - resumed[0]["t"] and resumed[0]["noise"] == "fresh"
    whole = json.loads(read(reference.folder / "whole" / "trace.jsonl").splitlines()[-1])
    claimed = json.loads(result.stdout)["epsilon"]["upper"]
    if resumed[0]["charged_again"]:
        assert claimed > whole["epsilon"]["upper"]
    else:
        assert claimed == whole["epsilon"]["upper"]
