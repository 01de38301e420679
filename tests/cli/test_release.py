"""`discreet release` and `discreet gate`: what an operator signs and a service asks. The Python
`cryptography` package is the oracle of the signature."""

import base64
import hashlib
import json
import shutil
import sqlite3
import time

import example_corpus
import pytest
from command import answer, discreet, refusal
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from example_corpus import hashes

CONFIG = """
data: {format: digits}
model: {kind: mlp, hidden: [8]}
optimizer: {rate: 1}
security:
  differential_privacy:
    accountant: rdp
    adjacency: zero_out
    target_epsilon: 30
    target_steps: 6
    declared_size: 1437
    effective_batch_size: 128
    noise_multiplier: 1
    clipping: {norm: 1, ghost: true}
"""
SCOPES = {"classify": {"purposes": ["care", "research"], "serves_withdrawn": True},
          "embed": {"layers": ["layer0"]},
          "strict": {}}


def train(out, *args):
    result = discreet("train", "-", "--out", str(out), *args, input=CONFIG)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    example_corpus.make("release_example", folder)
    (folder / "scopes.json").write_text(json.dumps(SCOPES))
    train(folder / "plain")
    shutil.copytree(folder / "plain", folder / "run")
    (folder / "ledger.note").rename(folder / "run" / "ledger.note")
    return folder


def release(folder, *more, run="run", status=0):
    governed = ["--ledger", folder / "ledger.db", "--ledger-key", folder / "ledger.key"] if run == "run" else []
    args = ["release", folder / run, "--key", folder / "release.key", *governed, *more]
    return answer(*args) if status == 0 else refusal(*args, status=status)


def ask(folder, generation_class="embed", *more, run="run", purpose="research", rights=None, status=0):
    request = folder / "request.json"
    request.write_text(json.dumps(
        {"generation_class": generation_class, "purpose": purpose, "rights": rights or {}}))
    found = answer("gate", folder / run / "release.json", request, "--public-key",
                   folder / "release.pub", *more, status=status)
    assert found["allowed"] == (status == 0) and found["sentence"]
    return found


def statement(folder, run="run"):
    envelope = json.loads((folder / run / "release.json").read_text())
    return json.loads(base64.b64decode(envelope["payload"]))


@pytest.fixture
def released(folder):
    release(folder, "--scopes", folder / "scopes.json")
    return folder


def test_a_manifest_is_an_in_toto_statement_that_other_tools_verify(folder):
    found = release(folder, "--scopes", folder / "scopes.json", "--max-age-days", "30")
    text = (folder / "run" / "release.json").read_bytes()
    assert found["manifest_hash"] == hashlib.sha256(text).hexdigest()
    envelope = json.loads(text)
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    key = load_pem_public_key((folder / "release.pub").read_bytes())
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    key.verify(signature, message)
    with pytest.raises(InvalidSignature):
        key.verify(signature, message + b" ")

    said = json.loads(payload)
    model = (folder / "run" / "model.safetensors").read_bytes()
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["subject"] == [{"name": "model.safetensors",
                                "digest": {"sha256": hashlib.sha256(model).hexdigest()}}]
    predicate = said["predicate"]
    assert predicate["runs"] == ["run-1"] and predicate["max_age"] == 30 * 86400
    assert predicate["layers"] == [{"layer": "layer0", "classes": ["public"]},
                                   {"layer": "layer1", "classes": ["clinical", "public"]}]
    clinical, public = predicate["postures"]
    assert (clinical["class"], clinical["contributions"], clinical["withdrawn"]) == ("clinical", 3, 1)
    assert (public["class"], public["contributions"], public["withdrawn"]) == ("public", 4, 0)
    end = json.loads((folder / "run" / "trace.jsonl").read_text().splitlines()[-1])
    most = max(end["epsilon"]["upper"] * 1e6, *(p["spent_epsilon_micro"] for p in predicate["postures"]))
    assert 0 <= predicate["privacy"]["epsilon_upper_micro"] - most <= 1
    assert predicate["privacy"]["adjacency"] == "zero_out"
    assert predicate["privacy"]["not_covered"]
    stays, left = (answer("ledger", "trace", folder / "ledger.db", hashes(folder)[i])["epsilon"] for i in (5, 4))
    # The plan of the run, of which the one that was withdrawn saw an epoch.
    planned = answer("account", "--sampling-rate", "0.01", "--noise-multiplier", "3", "--steps", "1000", "--delta", "1e-5")
    assert stays == left == pytest.approx(planned["epsilon"]["upper"], abs=3e-6)
    assert clinical["spent_epsilon_micro"] == round(left * 1e6)


def test_a_release_is_recorded_where_contributors_find_it(released):
    db = released / "ledger.db"
    note = released / "run" / "ledger.note"
    assert answer("ledger", "verify", db, "--checkpoint", note)["counts"]["releases"] == 1
    hashed = hashlib.sha256((released / "run" / "release.json").read_bytes()).hexdigest()
    for touched in hashes(released):
        releases = answer("ledger", "trace", db, touched)["releases"]
        assert [(r["run"], r["manifest_hash"]) for r in releases] == [("run-1", hashed)]
    again = release(released)
    assert len(answer("ledger", "trace", db, hashes(released)[0])["releases"]) == 2
    assert again["released_at"] > again["ledger_position"] - 1


def test_a_withdrawal_bundle_names_the_releases(released):
    events = released / "events.jsonl"
    answer("withdraw", hashes(released)[0], "--origin", "test.example/corpus", "--key",
           released / "contributor.key", "--events", events)
    answer("withdraw", "--ledger", released / "ledger.db", "--key", released / "ledger.key", "--events",
           events, "--bundles", released)
    found = answer("withdraw", "--verify", released / f"{hashes(released)[0]}.json", "--public-key",
                   released / "ledger.pub")
    hashed = hashlib.sha256((released / "run" / "release.json").read_bytes()).hexdigest()
    assert found["affected_releases"] == [{"run": "run-1", "manifest_hash": hashed}]


def test_the_gate_allows_and_denies_by_class_purpose_and_rights(released):
    found = ask(released, "classify", purpose="care")
    assert found["reason"] == "ALLOWED" and found["ledger_position"] > 0
    assert ask(released, "classify", purpose="adverts", status=1)["reason"] == "PURPOSE_NOT_GRANTED"
    assert ask(released, "chat", status=1)["reason"] == "UNKNOWN_GENERATION_CLASS"
    assert ask(released, "strict", status=1)["reason"] == "DRAWS_ON_WITHDRAWN"
    only_public = {"classes": ["public"]}
    assert ask(released, "classify", rights=only_public, status=1)["reason"] == "CLASS_NOT_PERMITTED"
    assert ask(released, "embed", rights=only_public)["reason"] == "ALLOWED"
    assert ask(released, "embed", rights={"most_epsilon": 1e-3}, status=1)["reason"] == "EPSILON_ABOVE"
    text = discreet("gate", str(released / "run" / "release.json"), str(released / "request.json"),
                    "--public-key", str(released / "release.pub"))
    assert text.returncode == 1 and text.stdout.startswith("DENIED EPSILON_ABOVE: ")


def test_the_gate_without_a_request_says_what_may_be_asked(released):
    result = discreet("gate", str(released / "run" / "release.json"), "--public-key",
                      str(released / "release.pub"), "--ledger", str(released / "ledger.db"))
    assert result.returncode == 0 and result.stdout.startswith("ALLOWED: the manifest is valid")
    assert "embed, for any: draws on layer0\n" in result.stdout


def test_the_gate_fails_closed(released):
    ledger = ["--ledger", released / "ledger.db"]
    assert ask(released, "embed", *ledger)["released_at"] is not None
    now = time.time()
    late = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + 8 * 86400))
    early = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 3600))
    assert ask(released, "embed", "--at", late, status=1)["reason"] == "STALE"
    assert ask(released, "embed", "--at", early, status=1)["reason"] == "NOT_YET_VALID"
    key = released / "release.pub"
    good = key.read_text()
    key.write_text((released / "stranger.pub").read_text())
    assert ask(released, "embed", status=1)["reason"] == "UNKNOWN_KEY"
    key.write_text(good)
    assert ask(released, "embed", *ledger, "--ledger-key", released / "stranger.pub",
               status=1)["reason"] == "LEDGER_UNVERIFIED"
    assert ask(released, "embed", "--checkpoint", released / "run" / "ledger.note",
               status=1)["reason"] == "LEDGER_UNVERIFIED"

    model = released / "run" / "model.safetensors"
    elsewhere = released / "model.safetensors"
    shutil.copy(model, elsewhere)
    weights = bytearray(model.read_bytes())
    weights[-1] ^= 1
    model.write_bytes(weights)
    assert ask(released, "embed", status=1)["reason"] == "WRONG_MODEL"
    assert ask(released, "embed", "--model", elsewhere)["reason"] == "ALLOWED"
    model.unlink()
    assert ask(released, "embed", status=1)["reason"] == "WRONG_MODEL"
    shutil.copy(elsewhere, model)

    manifest = released / "run" / "release.json"
    text = manifest.read_text()
    for bent in ("", "{}", text[:-10], text + " ", "[" * 100000):
        manifest.write_text(bent)
        assert ask(released, "embed", status=1)["reason"] == "MALFORMED_MANIFEST"
    envelope = json.loads(text)
    said = json.loads(base64.b64decode(envelope["payload"]))
    said["predicate"]["max_age"] *= 100
    envelope["payload"] = base64.b64encode(
        json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).decode()
    manifest.write_text(json.dumps(envelope, sort_keys=True, separators=(",", ":")) + "\n")
    assert ask(released, "embed", status=1)["reason"] == "BAD_SIGNATURE"
    manifest.write_text(text)

    with sqlite3.connect(released / "ledger.db") as connection:
        connection.execute("DELETE FROM leaf WHERE position = (SELECT max(position) FROM leaf WHERE position <= 4)")
    assert ask(released, "embed", *ledger, status=1)["reason"] == "LEDGER_UNVERIFIED"


def test_a_withdrawal_after_the_release_stops_every_answer(released):
    events = released / "events.jsonl"
    ledger = ["--ledger", released / "ledger.db"]
    shutil.copy(released / "ledger.db", released / "old.db")
    answer("withdraw", hashes(released)[6], "--origin", "test.example/corpus", "--key",
           released / "contributor.key", "--events", events)
    recorded = answer("withdraw", "--ledger", released / "ledger.db", "--key", released / "ledger.key",
                      "--events", events)
    for kind in ("embed", "classify"):
        assert ask(released, kind, *ledger, status=1)["reason"] == "WITHDRAWN"
    assert ask(released, "embed")["reason"] == "ALLOWED"  # who shows no ledger goes by max_age
    (released / "new.note").write_text(recorded["note"])
    assert ask(released, "embed", "--ledger", released / "old.db", "--checkpoint", released / "new.note",
               status=1)["reason"] == "LEDGER_UNVERIFIED"
    # Released again, it says so, and serves what the release takes upon itself.
    release(released, "--scopes", released / "scopes.json", "--name", "run-1")
    assert ask(released, "classify", *ledger)["reason"] == "ALLOWED"
    assert ask(released, "strict", *ledger, status=1)["reason"] == "DRAWS_ON_WITHDRAWN"
    assert [p["withdrawn"] for p in statement(released)["predicate"]["postures"]] == [2, 0]


def test_a_run_without_corpus_is_released_without_ledger(folder):
    found = release(folder, run="plain")
    assert found["ledger_position"] is None and found["released_at"] is None
    predicate = statement(folder, "plain")["predicate"]
    assert predicate["ledger"] is None and predicate["runs"] == ["plain"]
    assert [p["class"] for p in predicate["postures"]] == ["(unattested)"]
    assert ask(folder, "predict", run="plain")["ledger_position"] is None
    assert ask(folder, "predict", run="plain", rights={"classes": ["public"]},
               status=1)["reason"] == "CLASS_NOT_PERMITTED"
    assert ask(folder, "predict", "--ledger", folder / "ledger.db", run="plain",
               status=1)["reason"] == "LEDGER_UNVERIFIED"


def test_a_manifest_depends_on_the_data_only_through_the_model(folder):
    config = """
data: {format: csv, train: %s, label: class, classes: [left, right], numeric: {x: [-4, 4]}}
model: {kind: softmax}
security:
  differential_privacy: {accountant: rdp, target_epsilon: 30, target_steps: 5, declared_size: 40,
    effective_batch_size: 10, noise_multiplier: 1, clipping: {norm: 1, ghost: true}}
"""
    said = []
    for name, sign in (("one", 1), ("other", -3)):
        data = folder / f"{name}.csv"
        data.write_text("x,class\n" + "".join(f"{sign * (i % 7) / 7},{'left' if i % 2 else 'right'}\n"
                                              for i in range(40 if sign > 0 else 31)))
        assert discreet("train", "-", "--out", str(folder / name), input=config % data).returncode == 0
        release(folder, "--name", "same", run=name)
        one = statement(folder, name)
        said.append(one)
        model = (folder / name / "model.safetensors").read_bytes()
        assert one["subject"][0]["digest"].pop("sha256") == hashlib.sha256(model).hexdigest()
        one["predicate"].pop("issued")
    assert said[0] == said[1]


def test_release_refuses_runs_without_a_claim(folder, tmp_path):
    run = folder / "plain"
    key = ["--key", str(folder / "release.key")]
    lines = (run / "trace.jsonl").read_text().splitlines(keepends=True)
    (run / "trace.jsonl").write_text("".join(lines[:-1]))
    assert "MALFORMED" in release(folder, run="plain", status=1)
    (run / "trace.seal").rename(folder / "kept.seal")
    assert "no final claim" in release(folder, run="plain", status=2)
    (folder / "kept.seal").rename(run / "trace.seal")
    lower = json.loads(lines[-1])
    lower["epsilon"]["upper"] /= 2
    (run / "trace.jsonl").write_text("".join(lines[:-1]) + json.dumps(lower, sort_keys=True, separators=(",", ":")) + "\n")
    assert "MALFORMED" in release(folder, run="plain", status=1)
    (run / "trace.jsonl").write_text("".join(lines))
    (run / "model.safetensors").write_bytes(b"no model")
    assert "MALFORMED" in release(folder, run="plain", status=1)
    (run / "model.safetensors").unlink()
    assert "left no model" in release(folder, run="plain", status=2)
    assert not (run / "release.json").exists()
    seeded = tmp_path / "seeded"
    train(seeded, "--insecure-seed", "1")
    result = discreet("release", str(seeded), *key)
    assert result.returncode == 2 and "promises nothing" in result.stderr
    assert discreet("release", str(tmp_path / "none"), *key).returncode == 2


def test_release_refuses_ledgers_that_are_not_the_runs(folder):
    ledger = folder / "ledger.db"
    note = folder / "run" / "ledger.note"
    before = ledger.read_bytes()
    args = ["release", folder / "run", "--key", folder / "release.key", "--ledger", ledger]
    assert "--ledger-key" in discreet(*map(str, args)).stderr
    result = discreet(*map(str, args), "--ledger-key", str(folder / "stranger.key"))
    assert result.returncode == 1 and "MALFORMED" in result.stderr
    assert "no epoch of run" in release(folder, "--name", "run-7", status=2)
    text = note.read_text()
    note.write_text(text.replace("test.example", "else.example", 1))
    assert "MALFORMED" in release(folder, status=1)
    note.unlink()
    assert "ledger.note is not there" in release(folder, status=2)
    note.write_text(text)
    assert "layer7" in release_with(folder, {"predict": {"layers": ["layer7"]}})
    assert "must be a JSON object" in release_with(folder, [])
    assert "is not a folder" in release(folder, "--out", folder / "none" / "release.json", status=2)
    assert ledger.read_bytes() == before
    with sqlite3.connect(ledger) as connection:
        row, = connection.execute("SELECT max(position) FROM leaf WHERE position <= 5").fetchone()
        connection.execute("UPDATE leaf SET items = x'00' WHERE position = ?", (row,))
    assert f"does not verify at entry {row}" in release(folder, status=1)
    ledger.unlink()
    assert "cannot open" in release(folder, status=2)
    assert not (folder / "run" / "release.json").exists()


def release_with(folder, scopes):
    (folder / "bad.json").write_text(json.dumps(scopes))
    return release(folder, "--scopes", folder / "bad.json", status=2)


@pytest.mark.parametrize("text", ["", "{}", "[]", "\0", '{"generation_class":"embed"}', "x" * (2 << 20)])
def test_a_request_that_is_none_is_bad_input(released, text):
    (released / "bad.json").write_text(text)
    result = discreet("gate", str(released / "run" / "release.json"), str(released / "bad.json"),
                      "--public-key", str(released / "release.pub"))
    assert result.returncode == 2 and result.stderr.startswith("error: INVALID_INPUT: ")
    assert result.stdout == ""


def test_a_model_of_more_than_a_gibibyte_is_judged(released):
    large = released / "model.safetensors"
    with open(large, "wb") as file:
        file.truncate((1 << 30) + 1)  # takes no room on the disk
    assert ask(released, "embed", "--model", large, status=1)["reason"] == "WRONG_MODEL"
