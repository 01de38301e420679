"""Files that earlier versions wrote still verify and open, or are rejected with a sentence that names the migration."""

import json
import pathlib
import shutil

import pytest
from command import answer, discreet

COMPAT = pathlib.Path(__file__).parents[1] / "compat"
ORIGIN = "compat.example/notes"


@pytest.fixture(params=sorted(path.name for path in COMPAT.iterdir() if path.is_dir()))
def old(request, tmp_path):
    shutil.copytree(COMPAT / request.param, tmp_path / "old")
    for path in (tmp_path / "old").rglob("*"):  # git keeps no modes
        path.chmod(0o700 if path.is_dir() else 0o600)
    return tmp_path / "old"


def test_a_ledger_verifies_and_extends_its_note(old):
    found = answer("ledger", "verify", old / "ledger.db", "--public-key", old / "steward.pub",
                   "--checkpoint", old / "ledger.note")
    assert found["verified"] and found["origin"] == ORIGIN and found["counts"]["withdrawals"] == 1
    assert found["attestations_verified"] == 24


def test_proofs_receipts_and_bundles_hold(old):
    for line in (old / "receipts.jsonl").read_text().splitlines():
        (old / "one.json").write_text(line)
        assert answer("ledger", "check", old / "one.json", "--public-key", old / "steward.pub")["verified"]
    assert answer("ledger", "check", old / "proof.json", "--public-key", old / "steward.pub")["origin"] == ORIGIN
    found = answer("withdraw", "--verify", old / "bundle.json", "--public-key", old / "steward.pub")
    assert found["verified"] and found["uses"] == 3 and found["releases"] == 1


def test_a_ledger_without_plans_is_stated_under_the_sentence_that_it_needs(old):
    """Schema 1 records what epochs spent, not what runs planned: of withdrawn contributions all uses that they allowed."""
    found = answer("ledger", "verify", old / "ledger.db")
    assert found["schema"] == 1
    assert "every run ended as it was planned" in discreet("ledger", "verify", str(old / "ledger.db")).stdout
    withdrawn = answer("withdraw", "--verify", old / "bundle.json")
    traced = answer("ledger", "trace", old / "ledger.db", withdrawn["descriptor_hash"])
    assert withdrawn["epsilon"] == traced["epsilon"] > max(use["cumulative_epsilon"] for use in traced["uses"])
    text = discreet("ledger", "trace", str(old / "ledger.db"), withdrawn["descriptor_hash"]).stdout
    assert "all uses that it allowed" in text and "planned" not in text


def test_receipts_of_deletions_hold(old):
    line = json.loads((old / "unlearn.receipts.jsonl").read_text().splitlines()[0])
    (old / "one.json").write_text(json.dumps({"leaf": line["leaf"], "receipt": line["receipt"]}))
    assert answer("ledger", "check", old / "one.json", "--public-key", old / "unlearn" / "ledger.pub")["verified"]


def test_descriptors_are_accepted_by_the_policy_without_being_signed_again(old):
    at = ("--at", "2026-11-18")
    refused = discreet("admit", str(old / "policy.yaml"), str(old / "anchors.jsonl"), *at)
    assert refused.returncode == 1 and "accept_unbound" in refused.stdout
    hashes = [json.loads(line)["descriptor_hash"] for line in (old / "anchors.jsonl").read_text().splitlines()]
    (old / "new.yaml").write_text((old / "policy.yaml").read_text() + f"accept_unbound: [{', '.join(hashes)}]\n")
    admitted = discreet("admit", str(old / "new.yaml"), str(old / "anchors.jsonl"), *at)
    assert admitted.returncode == 0, admitted.stdout + admitted.stderr


def test_a_manifest_opens_the_gate(old):
    result = discreet("gate", str(old / "release.json"), "--public-key", str(old / "release.pub"),
                      "--ledger", str(old / "ledger.db"), "--ledger-key", str(old / "steward.pub"))
    assert result.returncode in (0, 1) and "MALFORMED" not in result.stdout, result.stdout + result.stderr


def test_an_unlearning_store_opens_and_goes_on(old):
    status = answer("unlearn", "status", old / "unlearn")
    assert (status["live"], status["deletions"]) == (29, 1)
    assert answer("unlearn", "delete", old / "unlearn", "--subject", "person-2")["live"] == 28
    assert answer("ledger", "verify", old / "unlearn" / "ledger.db")["counts"]["deletions"] == 2
    again = discreet("unlearn", "insert", str(old / "unlearn"), str(old / "records.csv"), "--request", "again")
    assert again.returncode == 2 and "--reinsert" in again.stderr


def test_statements_and_events_are_read(old):
    result = discreet("admit", str(old / "policy.yaml"), str(old / "anchors.jsonl"), "--statements",
                      str(old / "statements.jsonl"), "--at", "2026-11-18")
    assert result.returncode == 1 and "statements.jsonl" not in result.stderr
