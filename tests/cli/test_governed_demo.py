"""`discreet demo --governed`: a corpus from its first key to a query that is denied."""

import hashlib
import json
import time

import pytest
from command import discreet

REFUSALS = {"BAD_SIGNATURE", "BELOW_FLOOR", "DUPLICATE", "MALFORMED", "NO_ATTESTATION", "OUTSIDE_VALIDITY",
            "REVOKED_KEY", "UNKNOWN_CLASS", "UNTRUSTED_KEY", "WITHDRAWN"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    begin = time.monotonic()
    done = discreet("demo", "--governed", "--out", "run", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout), time.monotonic() - begin


def test_every_act_is_there(shown):
    _, said, seconds = shown
    acts = said["governed"]
    assert set(acts["refused"]) == REFUSALS
    assert {c["class"] for c in acts["ledger"]["classes"]} == {"open", "research", "clinical"}
    assert acts["ledger"]["verified"] and acts["withdrawal"]["proof_verified"]
    assert acts["withdrawal"]["epochs_before"] == acts["ledger"]["epochs"] // 2
    first, second = acts["release"]["asked"]
    assert first["allowed"] and not second["allowed"] and second["reason"] == "CLASS_NOT_PERMITTED"
    assert said["not_private"] == [] and said["accuracy"] > 0.8
    # The run's claim is for the class that has least noise: no class of the ledger spends more, not even the one that lost a
    # contribution.
    assert max(c["epsilon"] for c in acts["ledger"]["classes"]) <= said["epsilon"]["upper"] + 1e-4
    clinical = next(c for c in acts["ledger"]["classes"] if c["class"] == "clinical")
    assert clinical["epsilon"] == acts["withdrawal"]["epsilon"]
    assert seconds < 120  # 20 on a machine that does nothing else


def test_its_report_knows_the_withdrawal_and_the_release(shown):
    folder, said, _ = shown
    page = (folder / "run/report.html").read_text()
    assert said["governed"]["withdrawal"]["descriptor_hash"] in page
    assert hashlib.sha256((folder / "run/release.json").read_bytes()).hexdigest() in page
    assert all(reason in page for reason in REFUSALS)


def test_what_it_leaves_verifies_by_itself_and_runs_again_bit_by_bit(shown):
    folder, said, _ = shown
    found = json.loads(discreet("ledger", "verify", "run/ledger.db", "--checkpoint", "run/ledger.note",
                                "--public-key", "run/corpus/steward.pub", "--json", cwd=folder).stdout)
    assert found["verified"] and found["counts"]["withdrawals"] == 1 and found["counts"]["releases"] == 1
    entries = found["entries"]
    again = discreet("replay", "run", cwd=folder)
    assert again.returncode == 0, again.stdout + again.stderr
    assert json.loads(discreet("ledger", "verify", "run/ledger.db", "--json", cwd=folder).stdout)["entries"] == entries
    leaver = said["governed"]["withdrawal"]["descriptor_hash"]
    traced = json.loads(discreet("ledger", "trace", "run/ledger.db", leaver, "--json", cwd=folder).stdout)
    assert len(traced["uses"]) == 10 and traced["withdrawal"] and len(traced["releases"]) == 1
    # The name of a contribution in the ledger is the one in its anchor file.
    anchors = {json.loads(line)["descriptor_hash"] for line in
               (folder / "run/corpus/descriptors.jsonl").read_text().splitlines()}
    assert leaver in anchors


def test_it_is_readable_and_keeps_to_its_folder(tmp_path):
    done = discreet("demo", "--governed", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for act in ["A private model", "Rejected by the gate", "Withdrawn midway", "The ledger", "Released",
                "ALLOWED", "DENIED"]:
        assert act in done.stdout, act
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    refused = discreet("demo", "--governed", "--out", "run", cwd=tmp_path)
    assert refused.returncode == 2 and "--resume" in refused.stderr
