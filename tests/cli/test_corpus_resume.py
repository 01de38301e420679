"""Governed runs that are stopped, resumed, put back or moved."""

import json
import os
import pathlib
import signal
import stat
import subprocess
import tempfile
import time

import pytest
from command import discreet
from corpora import train


def test_a_run_that_lost_its_note_of_the_ledger_is_not_resumed(corpus):
    folder = corpus(steps=12)
    whole = folder / "train.yaml"
    whole.write_text(whole.read_text() + "run: {checkpoint_every: 1}\n" if "run:" not in whole.read_text() else whole.read_text())
    assert train(folder, "run").returncode == 0
    (folder / "run" / "ledger.note").unlink()
    if (folder / "run" / "checkpoint.cbor").exists():
        again = train(folder, "run", "--resume")
        assert again.returncode == 2 and "ledger.note is missing" in again.stderr


def stopped(folder, out):
    """Ctrl-C after the first epochs of the run."""
    running = subprocess.Popen([os.environ["DISCREET"], "train", "train.yaml", "--out", out], cwd=folder,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    trace = folder / out / "trace.jsonl"
    for _ in range(20000):
        if trace.exists() and trace.read_bytes().count(b'"iter"') > 6:
            break
        time.sleep(0.002)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate()
    assert running.returncode == 0, said
    end = json.loads(trace.read_text().splitlines()[-1])
    assert end["ended"] == "interrupted" and end["steps"] < end["planned_steps"]


def test_a_run_that_was_stopped_states_and_releases_what_it_planned(corpus):
    """Somebody who saw results may have stopped it: its spend at that time is not a bound, its plan is."""
    folder = corpus(uses=6, steps=2000)
    assert discreet("keygen", "release", cwd=folder).returncode == 0
    stopped(folder, "run")
    ledger = str(folder / "ledger.db")

    def stated():
        found = json.loads(discreet("ledger", "verify", ledger, "--json").stdout)
        assert found["verified"] and found["schema"] == 2
        return found["counts"]["epochs"], {c["class"]: c["most_spent"] for c in found["classes"]}

    def released():
        done = discreet("release", "run", "--key", "release.key", "--ledger-key", "steward.key", "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["epsilon_upper"]

    epochs, spent = stated()
    # One Gaussian release of multiplier 0.4 and 1 at 1e-5, of which 2000 planned steps take all, and a few steps little.
    assert epochs < 400 and spent["open"] > 13 and spent["clinical"] > 4.3
    early = released()
    assert early >= max(spent.values())
    text = discreet("ledger", "verify", ledger).stdout
    assert "the number of runs was fixed; each counts with all steps that it planned" in text
    assert train(folder, "run", "--resume").returncode == 0
    # It went on until the budget of the run ended it: what contributions are charged stays the plan.
    later, same = stated()
    assert later > epochs and same == spent
    assert released() == early


def test_a_contribution_withdrawn_midway_states_the_plan_of_its_run(corpus):
    """And not what its promise would have allowed over all runs."""
    folder = corpus(uses=60, steps=300)
    stopped(folder, "run")
    ledger, origin = str(folder / "ledger.db"), "notes"
    clinical = [json.loads(line)["descriptor_hash"] for line in (folder / "anchors.jsonl").read_text().splitlines()][1]

    def trace(hash):
        return json.loads(discreet("ledger", "trace", ledger, hash, "--json").stdout)

    before = trace(clinical)
    assert discreet("withdraw", clinical, "--origin", origin, "--key", str(folder / "hospital.key"), "--events",
                    str(folder / "events")).returncode == 0
    assert discreet("withdraw", "--ledger", ledger, "--key", str(folder / "steward.key"), "--events",
                    str(folder / "events"), "--bundles", str(folder)).returncode == 0
    after = trace(clinical)
    bundle = json.loads(discreet("withdraw", "--verify", str(folder / f"{clinical}.json"), "--json").stdout)
    assert bundle["epsilon"] == after["epsilon"] == before["epsilon"]
    # The oracle composes the planned steps, at the multiplier of a use: sqrt(60) under noise 4 and C = 1.
    planned = json.loads(discreet("account", "--sampling-rate", "0.2", "--noise-multiplier", repr(60 ** 0.5), "--steps", "300",
                                  "--accountant", "rdp", "--adjacency", "zero_out", "--delta", "1e-5", "--json").stdout)
    assert planned["epsilon"]["upper"] == pytest.approx(after["epsilon"], rel=1e-4)
    assert len(after["uses"]) < 60 and "all that its runs planned" in discreet("ledger", "trace", ledger, clinical).stdout


def test_a_ledger_that_was_put_back_with_its_note_is_neither_reported_nor_released(corpus):
    """Otherwise somebody who can write to ledger and run, but cannot read secret.key, could undo a withdrawal."""
    folder = corpus(uses=60, steps=300)
    assert discreet("keygen", "release", cwd=folder).returncode == 0
    stopped(folder, "run")
    kept = [folder / "ledger.db", folder / "run" / "ledger.note"]
    before = [path.read_bytes() for path in kept]
    descriptor = json.loads((folder / "anchors.jsonl").read_text().splitlines()[1])["descriptor_hash"]
    assert discreet("withdraw", descriptor, "--origin", "notes", "--key", "hospital.key", "--events", "events",
                    cwd=folder).returncode == 0
    assert discreet("withdraw", "--ledger", "ledger.db", "--key", "steward.key", "--events", "events",
                    cwd=folder).returncode == 0
    done = train(folder, "run", "--resume")
    assert done.returncode == 0, done.stderr
    after = [path.read_bytes() for path in kept]
    report = ("report", "run", "--out", "page.html")
    release = ("release", "run", "--key", "release.key", "--ledger-key", "steward.key")
    assert discreet(*report, cwd=folder).returncode == 0

    for path, content in zip(kept, before):
        path.write_bytes(content)
    for command in (report, release):
        refused = discreet(*command, cwd=folder)
        assert refused.returncode != 0 and "earlier checkpoint covers" in refused.stderr, refused.stderr
    assert not (folder / "run" / "release.json").exists()

    kept[0].write_bytes(after[0])
    kept[1].unlink()
    refused = discreet(*report, cwd=folder)
    assert refused.returncode != 0 and "ledger.note does not exist" in refused.stderr
    kept[1].write_bytes(after[1])
    for command in (report, release, report, release):
        done = discreet(*command, cwd=folder)
        assert done.returncode == 0, done.stderr


def test_public_files_name_neither_folders_nor_the_private_key(corpus):
    folder = corpus(attested=80)
    assert train(folder, "run").returncode == 0
    assert discreet("report", "run", "--public", "--out", "page.html", cwd=folder).returncode == 0
    for name in ("run/config.yaml", "page.html"):
        text = (folder / name).read_text()
        assert str(folder) not in text and str(folder.parent) not in text and "steward.key" not in text, name
    assert 'train: "../notes.csv"' in (folder / "run" / "config.yaml").read_text()
    # What it names is found from the run, wherever both are.
    elsewhere = folder.parent / "elsewhere"
    folder.rename(elsewhere)
    assert discreet("replay", "run", cwd=elsewhere).returncode == 0
    again = train(elsewhere, "run", "--resume")
    assert again.returncode == 0, again.stderr
    # Another file of the same name is another run.
    (elsewhere / "other").mkdir()
    (elsewhere / "other" / "corpus.uses").touch()
    other = train(elsewhere, "run", "--resume", "--set", "corpus.uses=other/corpus.uses")
    assert other.returncode == 2 and "other/corpus.uses" in other.stderr


def test_a_run_apart_from_its_files_names_no_folder(corpus):
    folder = corpus(attested=80)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as apart:
        run = pathlib.Path(apart) / "run"
        assert train(folder, run).returncode == 0
        text = (run / "config.yaml").read_text()
        assert 'train: "notes.csv"' in text and ".." not in text
        assert train(folder, run, "--resume").returncode == 0
        # The operator finds them again, by a file that is not published.
        assert stat.S_IMODE((run / "places.json").stat().st_mode) == 0o600
        assert discreet("replay", str(run), cwd=folder).returncode == 0
        (run / "places.json").write_text("[1]")
        said = discreet("replay", str(run), cwd=folder)
        assert said.returncode == 2 and "places.json" in said.stderr


def test_a_run_is_resumed_only_with_the_contributions_it_began_with(corpus):
    folder = corpus(uses=60, steps=300)
    lines = (folder / "anchors.jsonl").read_text().splitlines(keepends=True)
    (folder / "anchors.jsonl").write_text("".join(lines[4:]))
    stopped(folder, "run")
    for changed in (lines, lines[6:]):
        (folder / "anchors.jsonl").write_text("".join(changed))
        said = train(folder, "run", "--resume")
        assert said.returncode == 2 and "the contributions differ from those" in said.stderr
    (folder / "anchors.jsonl").write_text("".join(lines[4:]))
    assert train(folder, "run", "--resume").returncode == 0
    assert discreet("replay", "run", cwd=folder).returncode == 0


def test_a_run_without_its_trace_does_not_repeat_its_noise_on_other_contributions(corpus):
    folder = corpus()
    assert train(folder, "run").returncode == 0
    for name in ("trace.jsonl", "trace.seal", "checkpoint.cbor", "model.safetensors"):
        (folder / "run" / name).unlink()
    lines = (folder / "anchors.jsonl").read_text().splitlines(keepends=True)
    (folder / "anchors.jsonl").write_text("".join(lines[1:]))
    said = train(folder, "run", "--resume")
    assert said.returncode == 2 and "the ledger already contains this run" in said.stderr
    assert not (folder / "run" / "model.safetensors").exists()
    assert train(folder, "another").returncode == 0
