"""discreet.ledger: what an auditor, a contributor and a steward do from Python."""

import hashlib
import json
import os
import pathlib
import sqlite3
import subprocess

import cbor2
import pytest

import discreet
from discreet.ledger import Ledger, sign_withdrawal, verify, verify_bundle, verify_proof, verify_receipt

EXAMPLE = pathlib.Path(os.environ["DISCREET_BUILD"]) / "tests" / "ledger_example"
ORIGIN = "test.example/corpus"


@pytest.fixture
def folder(tmp_path):
    printed = subprocess.run([EXAMPLE, tmp_path], check=True, capture_output=True, text=True).stdout
    (tmp_path / "hashes").write_text(printed)
    return tmp_path


def text(folder, name):
    return (folder / name).read_text("utf-8")


def hashes(folder):
    return text(folder, "hashes").split()


def command(*args):
    result = subprocess.run([os.environ["DISCREET"], *map(str, args)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_verify_agrees_with_the_command(folder):
    found = verify(folder / "ledger.db", public_key=text(folder, "ledger.pub"), checkpoint=text(folder, "early.note"))
    said = json.loads(command("ledger", "verify", folder / "ledger.db", "--json"))
    assert found and found.ok and (found.kind, found.problem, found.entry) == ("", "", None)
    assert (found.size, found.root, found.note) == (said["entries"], said["root"], said["note"])
    assert found.counts == said["counts"] and found.attestations == said["attestations_verified"]
    assert found.classes == said["classes"] and found.summarised == said["summarised_classes"]
    assert json.loads(found.header_json)["origin"] == ORIGIN
    assert verify(folder / "ledger.db", attestations=False).attestations == 0


def test_verify_is_false_for_another_key_another_past_and_an_altered_entry(folder):
    db = folder / "ledger.db"
    found = verify(db, public_key=text(folder, "stranger.pub"))
    assert not found and found.kind == "signature"
    ledger = Ledger(db)
    position = next(entry["entry"] for entry in ledger if entry["type"] == "use")
    leaf = ledger.leaf(position)
    bent = cbor2.loads(leaf)
    bent[3] -= 5
    with sqlite3.connect(db) as connection:
        for row, items in connection.execute("SELECT position, items FROM leaf").fetchall():
            connection.execute("UPDATE leaf SET items = ? WHERE position = ?", (items.replace(leaf, cbor2.dumps(bent)), row))
    found = verify(db)
    assert not found and found.kind == "entry" and found.entry == position and "compose" in found.problem
    (folder / "empty").write_bytes(b"")
    assert verify(folder / "empty").kind == "file"
    with pytest.raises(discreet.Error) as raised:
        verify(folder / "absent")
    assert raised.value.code == "IO_ERROR"
    with pytest.raises(discreet.Error):
        verify(db, checkpoint="no note")
    with pytest.raises(discreet.Error):
        verify(db, public_key="no key")


def test_a_ledger_is_a_sequence_of_entries(folder):
    ledger = Ledger(folder / "ledger.db")
    entries = list(ledger)
    assert len(ledger) == len(entries) == 37 and ledger.note == text(folder, "late.note")
    assert [entry["entry"] for entry in entries] == list(range(37))
    assert entries[0]["type"] == "header" and ledger[0]["origin"] == ORIGIN
    assert ledger[-1] == entries[36] == ledger[36]
    assert sum(entry["type"] == "summarised" for entry in entries) == 3
    for entry in entries:
        if entry["type"] != "summarised":
            assert hashlib.sha256(b"\0" + ledger.leaf(entry["entry"])).hexdigest() == entry["leaf_hash"]
    use = next(entry for entry in entries if entry["type"] == "use")
    assert ledger[use["terms"]]["type"] == "terms"
    for position in (37, -38, 10**30):
        with pytest.raises((IndexError, OverflowError)):
            ledger[position]
    with pytest.raises(TypeError):
        ledger["3"]


def test_reading_leaves_the_ledger_to_its_writer(folder):
    ledger = Ledger(folder / "ledger.db")
    some = iter(ledger)
    next(some)
    event = sign_withdrawal(hashes(folder)[0], origin=ORIGIN, key=text(folder, "contributor.key"), time=1_800_000_000)
    assert ledger.withdraw(event, key=text(folder, "ledger.key")) == 1
    assert len(list(some)) == 36 and len(ledger) == 39


def test_proofs_hold_without_the_ledger_and_for_nothing_else(folder):
    ledger, key = Ledger(folder / "ledger.db"), text(folder, "ledger.pub")
    early = text(folder, "early.note")
    proof = ledger.prove(5)
    assert proof == json.loads(command("ledger", "prove", ledger.path, "5", "--json"))
    from_early = ledger.prove_consistency(int(early.split("\n")[1]))
    (folder / "ledger.db").unlink()
    found = verify_proof(proof, public_key=key)
    assert found and (found.entry, found.size, found.origin) == (5, 37, ORIGIN)
    assert verify_proof(json.dumps(proof), public_key=key)
    assert not verify_proof({**proof, "entry": 6}, public_key=key)
    assert not verify_proof(proof, public_key=text(folder, "stranger.pub"))
    assert verify_proof(from_early, public_key=key, checkpoint=early).from_size == 11
    assert not verify_proof(from_early, public_key=key, checkpoint=text(folder, "late.note"))
    with pytest.raises(discreet.Error):
        verify_proof(from_early, public_key=key)
    with pytest.raises(discreet.Error):
        verify_proof({"path": []}, public_key=key)


def test_receipts_of_the_command_are_verified(folder):
    command("ledger", "export", folder / "ledger.db", "--receipts", folder / "receipts.jsonl", "--key", folder / "ledger.key")
    key = text(folder, "ledger.pub")
    lines = [json.loads(line) for line in text(folder, "receipts.jsonl").splitlines()]
    for line in lines:
        if "leaf" in line:
            receipt, leaf = bytes.fromhex(line["receipt"]), bytes.fromhex(line["leaf"])
            assert verify_receipt(receipt, leaf, public_key=key) == (line["entry"], 37)
            assert verify_receipt(receipt, leaf + b"\0", public_key=key) is None
            assert verify_proof(line, public_key=key).entry == line["entry"]
    assert verify_receipt(b"", b"", public_key=key) is None


def test_a_withdrawal_is_signed_recorded_once_traced_and_proven(folder):
    ledger, first = Ledger(folder / "ledger.db"), hashes(folder)[0]
    before = ledger.trace(first)
    assert before["withdrawal"] is None and [use["epoch"] for use in before["uses"]] == [0, 1]
    event = sign_withdrawal(first, origin=ORIGIN, key=text(folder, "contributor.key"), reason="moved", time=1_800_000_000)
    late = text(folder, "late.note")
    assert ledger.withdraw(event, key=text(folder, "ledger.key"), checkpoint=late) == 1
    assert ledger.withdraw(event, key=text(folder, "ledger.key")) == 0
    after = ledger.trace(first)
    assert after["withdrawal"]["reason"] == "moved" and after["epsilon"] == before["epsilon"] > 0
    assert ledger.verify(checkpoint=late).counts["withdrawals"] == 1
    bundle = ledger.bundle(first, key=text(folder, "ledger.key"))
    found = verify_bundle(bundle, public_key=text(folder, "ledger.pub"))
    assert found and (found.descriptor, found.uses, found.releases) == (first, 2, 1)
    assert found.epsilon == after["epsilon"]
    assert not verify_bundle(bundle, public_key=text(folder, "stranger.pub"))
    unknown = ledger.trace("00" * 32)
    assert unknown["admission"] is None and unknown["uses"] == [] and unknown["epsilon"] == 0


def test_what_may_not_be_withdrawn_is_refused_and_changes_nothing(folder):
    ledger, first = Ledger(folder / "ledger.db"), hashes(folder)[0]
    event = sign_withdrawal(first, origin=ORIGIN, key=text(folder, "stranger.key"))
    for bad, key in ((event, "ledger"), ("{}", "ledger"), ("", "stranger")):
        with pytest.raises(discreet.Error):
            ledger.withdraw(bad, key=text(folder, f"{key}.key"))
    with pytest.raises(discreet.Error):
        sign_withdrawal("00", origin=ORIGIN, key=text(folder, "contributor.key"))
    assert ledger.note == text(folder, "late.note") and ledger.verify()


def test_errors_have_no_terminal_commands(folder):
    with pytest.raises(discreet.Error) as raised:
        sign_withdrawal("00" * 32, origin="x\x1b[31m\x9b y", key=text(folder, "steward.key"))
    assert "is not the name of a ledger" in raised.value.sentence
    assert not set(str(raised.value) + raised.value.sentence) & {"\x1b", "\x9b"}


def test_a_proof_says_in_plain_members_what_was_signed(folder):
    key, proof = text(folder, "ledger.pub"), Ledger(folder / "ledger.db").prove(3)
    assert verify_proof({**proof, "origin": ORIGIN}, public_key=key)
    assert not verify_proof({**proof, "origin": "other.example"}, public_key=key)
    twice = json.dumps(proof)
    with pytest.raises(discreet.Error, match="twice"):
        verify_proof('{"entry": 5, ' + twice[1:], public_key=key)
