"""What `report`, `release`, `trace` and `gate` say of a run directory that someone rewrote. The attacker writes to the
directory, knows every format and repairs every hash, but cannot read `secret.key`."""

import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest
from command import answer, discreet, refusal
from cryptography.hazmat.primitives.serialization import load_pem_private_key

CONFIG = """
data: {format: digits}
model: {kind: mlp, hidden: [8]}
optimizer: {rate: 1}
run: {checkpoint_every: 4}
security:
  differential_privacy:
    target_epsilon: 30
    target_steps: 6
    declared_size: 1437
    effective_batch_size: 128
    noise_multiplier: 1
    clipping: {norm: 1}
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("claims")
    (folder / "train.yaml").write_text(CONFIG)
    for name in ("run", "other"):
        assert discreet("train", str(folder / "train.yaml"), "--out", str(folder / name)).returncode == 0
    assert discreet("keygen", str(folder / "release")).returncode == 0
    return folder


@pytest.fixture
def folder(original, tmp_path):
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    (tmp_path / "run" / "report.html").unlink(missing_ok=True)
    return tmp_path


def lines_of(run):
    return [json.loads(line) for line in (run / "trace.jsonl").read_text().splitlines()]


def rechain(run, lines):
    """Writes the lines as a trace whose chain is whole."""
    prev = "0" * 64
    with open(run / "trace.jsonl", "w", encoding="utf-8") as trace:
        for line in lines:
            text = json.dumps(line | {"prev": prev}, sort_keys=True, separators=(",", ":"))
            prev = hashlib.sha256(text.encode()).hexdigest()
            trace.write(text + "\n")


def claim(lines, epsilon):
    """Makes every line say that no more was spent."""
    for line in lines:
        for key in ("cumulative_epsilon_before", "cumulative_epsilon_after"):
            if key in line:
                line[key] = epsilon
    lines[-1]["epsilon"] = lines[-1]["final_epsilon"] = {"lower": 0, "upper": epsilon}
    return lines


def reconfigure(run, *changes):
    """Replaces config.yaml, and the hash of it in the header and in the model."""
    text = (run / "config.yaml").read_text()
    for pattern, value in changes:
        text, found = re.subn(pattern, value, text)
        assert found == 1, pattern
    (run / "config.yaml").write_text(text)
    lines = lines_of(run)
    before, lines[0]["config_hash"] = lines[0]["config_hash"], answer("check", run / "config.yaml")["hash"]
    model = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(model.replace(before.encode(), lines[0]["config_hash"].encode()))
    if "model_sha256" in lines[-1]:
        lines[-1]["model_sha256"] = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    return lines


def edit_the_claim(folder):
    rechain(folder / "run", claim(lines_of(folder / "run"), 0.008))


def edit_the_events(folder):
    """Consistently: the configuration, its hash and every step say a hundred times the noise."""
    lines = reconfigure(folder / "run", (r"\bnoise_multiplier: 1\.0\b", "noise_multiplier: 100.0"))
    for line in lines:
        if line["kind"] == "iter":
            line["noise_scale_sigma"] = line["effective_heterogeneous_multiplier"] = 100
            line["effective_noise_multiplier"] *= 99
    rechain(folder / "run", claim(lines, 0.02))


def shorten_the_trace(folder):
    """Consistently: a plan of two steps, and two steps."""
    lines = reconfigure(folder / "run", (r"\btarget_steps: 6\b", "target_steps: 2"))
    steps = [line for line in lines if line["kind"] == "iter"][:2]
    end = lines[-1] | {"t": 2, "steps": 2, "planned_steps": 2}
    upper = steps[-1]["cumulative_epsilon_after"]
    end["epsilon"] = end["final_epsilon"] = {"lower": 0, "upper": upper}
    rechain(folder / "run", [lines[0], *steps, end])


def replace_the_weights(folder):
    """And the digest in the trace."""
    model = folder / "run" / "model.safetensors"
    weights = bytearray(model.read_bytes())
    weights[-1] ^= 1
    model.write_bytes(weights)
    lines = lines_of(folder / "run")
    lines[-1]["model_sha256"] = hashlib.sha256(weights).hexdigest()
    rechain(folder / "run", lines)


def take_another_runs_end(folder):
    """Trace, seal, checkpoint and model of another run of the same configuration, which has another key."""
    for name in ("trace.jsonl", "trace.seal", "checkpoint.cbor", "model.safetensors"):
        shutil.copy(folder / "other" / name, folder / "run" / name)


ATTACKS = [edit_the_claim, edit_the_events, shorten_the_trace, replace_the_weights, take_another_runs_end]


def release(folder, *more, status=0):
    args = ["release", folder / "run", "--key", folder / "release.key", *more]
    return answer(*args) if status == 0 else refusal(*args, status=status)


def gate(folder, status=0):
    return answer("gate", folder / "run" / "release.json", "--public-key", folder / "release.pub", status=status)


def test_an_honest_run_is_verified(folder):
    found = answer("report", folder / "run")
    assert found["seal"] == "verified"
    end = lines_of(folder / "run")[-1]
    assert found["epsilon"]["upper"] == end["epsilon"]["upper"]
    model = (folder / "run" / "model.safetensors").read_bytes()
    assert end["model_sha256"] == hashlib.sha256(model).hexdigest()
    page = (folder / "run" / "report.html").read_text()
    assert "Seal not verified" not in page and "verified with the run" in page
    assert "seal verified" in discreet("trace", str(folder / "run")).stdout
    assert release(folder)["epsilon_upper"] == pytest.approx(found["epsilon"]["upper"], abs=1e-6)
    assert gate(folder)["allowed"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_was_rewritten_is_rejected(folder, attack):
    attack(folder)
    for command in (["report"], ["report", "--public"], ["trace"], ["trace", "--json"], ["trace", "--csv"]):
        result = discreet(command[0], str(folder / "run"), *command[1:])
        assert result.returncode == 1, result.stdout + result.stderr
        starts = '{"error":{"code":"MALFORMED",' if "--json" in command else "error: MALFORMED: "
        assert result.stderr.startswith(starts) and result.stderr.count("\n") == 1
        assert result.stdout == ""
    assert not (folder / "run" / "report.html").exists()
    release(folder, status=1)
    release(folder, "--unsealed", status=1)
    assert not (folder / "run" / "release.json").exists()


@pytest.mark.parametrize("attack", ATTACKS)
def test_without_the_key_nothing_is_called_verified_or_signed(folder, attack):
    (folder / "run" / "secret.key").unlink()
    attack(folder)
    result = discreet("report", str(folder / "run"))
    if attack is edit_the_claim:  # contradicts its own steps: no key is needed to see it
        assert result.returncode == 1 and "0.008" in result.stderr
        return
    assert result.returncode == 0 and "seal not verified: secret.key does not exist" in result.stdout
    assert answer("report", folder / "run")["seal"].startswith("not verified: ")
    for public in ([], ["--public"]):
        said = answer("report", folder / "run", *public)
        assert "Seal not verified" in pathlib.Path(said["report"]).read_text(encoding="utf-8")
    assert "seal not verified" in discreet("trace", str(folder / "run")).stdout
    assert "--unsealed" in release(folder, status=2)
    assert not (folder / "run" / "release.json").exists()


def test_weights_that_the_trace_does_not_name_are_rejected_without_a_key(folder):
    model = folder / "run" / "model.safetensors"
    weights = bytearray(model.read_bytes())
    weights[-1] ^= 1
    model.write_bytes(weights)
    (folder / "run" / "secret.key").unlink()
    assert "model.safetensors is not the model of this run" in refusal("report", folder / "run", status=1)
    release(folder, "--unsealed", status=1)


def test_the_key_may_be_kept_elsewhere(folder):
    (folder / "run" / "secret.key").rename(folder / "kept.key")
    assert answer("report", folder / "run", "--secret", folder / "kept.key")["seal"] == "verified"
    assert "another secret.key" in refusal("report", folder / "run", "--secret", folder / "other" / "secret.key", status=1)
    release(folder, "--secret", folder / "kept.key")


def test_an_unsealed_release_says_so(folder):
    (folder / "run" / "trace.seal").unlink()
    assert "trace.seal does not exist" in release(folder, status=2)
    release(folder, "--unsealed")
    envelope = json.loads((folder / "run" / "release.json").read_text())
    privacy = json.loads(base64.b64decode(envelope["payload"]))["predicate"]["privacy"]
    assert any("seal was not verified" in sentence for sentence in privacy["not_covered"])
    assert gate(folder)["allowed"]


def test_a_run_of_an_earlier_version_opens_and_is_sealed_by_resuming_it(folder):
    run = folder / "run"
    (run / "trace.seal").unlink()
    text, found = re.subn(r'"model_sha256":"[0-9a-f]{64}",', "", (run / "trace.jsonl").read_text())
    assert found == 1
    (run / "trace.jsonl").write_text(text)
    before = (run / "model.safetensors").read_bytes()
    assert answer("report", run)["seal"].startswith("not verified: trace.seal does not exist")
    assert answer("replay", run)["same"]
    result = discreet("train", str(folder / "train.yaml"), "--out", str(run), "--resume")
    assert result.returncode == 0, result.stderr
    assert answer("report", run)["seal"] == "verified"
    assert (run / "model.safetensors").read_bytes() == before
    release(folder)


def test_a_shortened_trace_is_not_resumed(folder):
    run = folder / "run"
    text = (run / "trace.jsonl").read_text().splitlines(keepends=True)
    (run / "trace.jsonl").write_text("".join(text[:-1]))
    result = discreet("train", str(folder / "train.yaml"), "--out", str(run), "--resume")
    assert result.returncode == 2 and "changed or removed since" in result.stderr


def test_a_run_without_an_end_is_bound_by_its_first_line(folder):
    """Its claim is the budget of its configuration, which the header of the trace names."""
    run = folder / "run"
    rechain(run, reconfigure(run, (r"\btarget_epsilon: 30\.0\b", "target_epsilon: 2.0"))[:1])
    refusal("report", run, status=1)


def test_a_manifest_below_its_own_postures_is_denied(folder):
    release(folder)
    path = folder / "run" / "release.json"
    envelope = json.loads(path.read_text())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"]["privacy"]["epsilon_upper_micro"] = 8000
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    kind = envelope["payloadType"].encode()
    key = load_pem_private_key((folder / "release.key").read_bytes(), None)
    signature = key.sign(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload))
    envelope["payload"] = base64.b64encode(payload).decode()
    envelope["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    path.write_text(json.dumps(envelope, sort_keys=True, separators=(",", ":")) + "\n")
    found = gate(folder, status=1)
    assert found["reason"] == "MALFORMED_MANIFEST" and "release the run again" in found["sentence"]


def killed(folder):
    """A run that was killed after some steps."""
    (folder / "long.yaml").write_text(CONFIG.replace("target_steps: 6", "target_steps: 3000").replace("every: 4", "every: 9999"))
    running = subprocess.Popen([os.environ["DISCREET"], "train", str(folder / "long.yaml"), "--out", str(folder / "killed")],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    trace = folder / "killed" / "trace.jsonl"
    for _ in range(20000):
        if running.poll() is not None or trace.exists() and trace.read_bytes().count(b'"iter"') > 6:
            break
        time.sleep(0.002)
    running.kill()
    assert running.wait() == -signal.SIGKILL
    return folder / "killed"


def test_a_cut_trace_of_a_run_under_way_is_not_verified(folder):
    run = killed(folder)
    assert answer("report", run)["seal"] == "verified"
    text = (run / "trace.jsonl").read_text()
    kept = text.splitlines(keepends=True)[:-3]
    for lines in (kept, kept[:1]):
        (run / "trace.jsonl").write_text("".join(lines))
        assert "trace.steps counts more steps" in answer("report", run)["seal"]
        assert "seal not verified: trace.steps counts more" in discreet("trace", str(run)).stdout
    (run / "trace.steps").unlink()
    for lines in (kept, kept[:1]):
        (run / "trace.jsonl").write_text("".join(lines))
        assert "only the start of the trace is sealed" in answer("report", run)["seal"]


@pytest.mark.parametrize("name", ["trace.seal", "trace.jsonl", "config.yaml", "model.safetensors"])
def test_a_pipe_or_device_in_a_run_is_rejected_at_once(folder, name):
    path = folder / "run" / name
    for put in (os.mkfifo, lambda at: at.symlink_to("/dev/zero")):
        path.unlink()
        put(path)
        refused = discreet("report", str(folder / "run"), timeout=20)
        assert refused.returncode == 3 and "not a file" in refused.stderr, refused.stderr
