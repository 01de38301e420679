"""The gate in Python, on a release that the command signed."""

import json
import os
import pathlib
import subprocess
import threading

import pytest

import discreet
from discreet.release import Gate, read_manifest

EXAMPLE = pathlib.Path(os.environ["DISCREET_BUILD"]) / "tests" / "release_example"
CONFIG = {"data": {"format": "digits"}, "model": {"kind": "mlp", "hidden": [8]},
          "security": {"differential_privacy": {
              "accountant": "rdp", "adjacency": "zero_out", "target_epsilon": 30, "target_steps": 6,
              "declared_size": 1437, "effective_batch_size": 128, "noise_multiplier": 1,
              "clipping": {"norm": 1, "ghost": True}}}}


def command(*args):
    subprocess.run([os.environ["DISCREET"], *map(str, args)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    printed = subprocess.run([EXAMPLE, folder], check=True, capture_output=True, text=True).stdout
    (folder / "hashes").write_text(printed)
    discreet.train(CONFIG, folder / "run", threads=1)
    (folder / "ledger.note").rename(folder / "run" / "ledger.note")
    (folder / "scopes.json").write_text(json.dumps({"embed": {"layers": ["layer0"]}, "predict": {}}))
    command("release", folder / "run", "--key", folder / "release.key", "--ledger", folder / "ledger.db",
            "--ledger-key", folder / "ledger.key", "--scopes", folder / "scopes.json")
    return folder


def gate(folder, **more):
    return Gate(folder / "run" / "release.json", folder / "release.pub", **more)


def request(generation_class="embed", **rights):
    return {"generation_class": generation_class, "purpose": "research", "rights": rights}


def test_the_gate_decides(folder):
    decision = gate(folder, ledger=folder / "ledger.db").decide(request(classes=["public"]))
    assert decision and decision.allowed and decision.reason == "ALLOWED"
    assert decision.ledger_position > 0
    denied = gate(folder).decide(request("predict"))
    assert not denied and denied.reason == "DRAWS_ON_WITHDRAWN" and denied.sentence
    assert gate(folder).decide(request(classes=[])).reason == "CLASS_NOT_PERMITTED"
    assert gate(folder).decide(request(most_epsilon=1e-9)).reason == "EPSILON_ABOVE"


def test_the_statement_is_there_to_read(folder):
    here = gate(folder, ledger=folder / "ledger.db")
    assert here.statement == read_manifest(folder / "run" / "release.json")
    assert here.statement["predicate"]["runs"] == ["run-1"]
    assert here.released_at is not None and gate(folder).released_at is None
    assert here.standing().allowed


def test_the_clock_can_be_given(folder):
    now = read_manifest(folder / "run" / "release.json")["predicate"]["issued"]
    at = gate(folder, clock=lambda: now)
    assert at.decide(request()).allowed
    now += 7 * 86400
    assert at.decide(request()).reason == "STALE"
    now = 0
    assert at.standing().reason == "NOT_YET_VALID"


def test_it_fails_closed(folder, tmp_path):
    assert Gate(folder / "run" / "release.json", folder / "stranger.pub").decide(
        request()).reason == "UNKNOWN_KEY"
    assert gate(folder, model=[]).decide(request()).reason == "WRONG_MODEL"
    assert gate(folder, model=[folder / "scopes.json"]).standing().reason == "WRONG_MODEL"
    assert gate(folder, ledger_key=folder / "stranger.pub").standing().reason == "LEDGER_UNVERIFIED"
    (tmp_path / "release.json").write_text("{}")
    nothing = Gate(tmp_path / "release.json", folder / "release.pub")
    assert nothing.standing().reason == "MALFORMED_MANIFEST" and nothing.statement is None
    with pytest.raises(discreet.Error):
        read_manifest(tmp_path / "release.json")
    with pytest.raises(FileNotFoundError):
        Gate(tmp_path / "none.json", folder / "release.pub")

    def broken():
        raise RuntimeError("no time")

    with pytest.raises(RuntimeError):
        gate(folder, clock=broken).decide(request())


@pytest.mark.parametrize("bad", [{}, {"generation_class": "embed", "purpose": "p"}, request(most_epsilon=float("nan")),
                                 request(class_=["a"]), request() | {"more": 1}])
def test_a_request_that_is_none_is_an_error(folder, bad):
    with pytest.raises(discreet.Error) as error:
        gate(folder).decide(bad)
    assert error.value.code == "INVALID_INPUT"


def test_threads_share_a_gate(folder):
    here, found = gate(folder), []
    threads = [threading.Thread(target=lambda: found.extend(here.decide(request()).allowed for _ in range(200)))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 800


def test_a_withdrawal_reaches_the_next_gate(folder):
    events = folder / "events.jsonl"
    victim = (folder / "hashes").read_text().split()[0]
    command("withdraw", victim, "--origin", "test.example/corpus", "--key", folder / "contributor.key",
            "--events", events)
    command("withdraw", "--ledger", folder / "ledger.db", "--key", folder / "ledger.key", "--events", events)
    assert gate(folder, ledger=folder / "ledger.db").decide(request()).reason == "WITHDRAWN"
