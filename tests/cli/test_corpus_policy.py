"""What a policy costs before a run, and what the ledger of a run says of it."""

import base64
import json
import math
import sqlite3

import cbor2
import pytest
from command import discreet
from corpora import AT, header, train
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from scipy.stats import norm


def plan_policy(folder, *more):
    result = discreet("plan", "--policy", "policy.yaml", "--config", "train.yaml", "--json", *more, cwd=folder)
    assert result.returncode == 0, result.stderr
    out = json.loads(result.stdout)
    return out, {each["class"]: each for each in out["classes"]}


@pytest.mark.parametrize("family", ["gaussian", "rounded_gaussian", "laplace"])
def test_a_policy_is_planned_as_a_run_of_it_accounts(corpus, family):
    folder = corpus()
    text = (folder / "train.yaml").read_text()
    if family != "gaussian":
        grid = "{family: rounded_gaussian, discrete: 0.0009765625}" if family == "rounded_gaussian" else "{family: laplace}"
        (folder / "train.yaml").write_text(text.replace("ghost: true", "ghost: false") + f"    noise: {grid}\n")
    planned, classes = plan_policy(folder)
    assert not (folder / "corpus.uses").exists() and not list(folder.glob("*.db"))
    result = train(folder, "run")
    assert result.returncode == 0, result.stderr
    assert planned["epsilon_of_run"] == json.loads(result.stdout)["epsilon"] and planned["steps"] == 12
    run = {each["class"]: each for each in header(folder, "run")["classes"]}
    assert set(run) == set(classes) == {"clinical", "open"}
    for name, own in run.items():
        assert {key: classes[name][key] for key in ("epsilon", "delta", "most_uses")} == {
            key: own[key] for key in ("epsilon", "delta", "most_uses")}
        assert classes[name]["multiplier"] == own["noise_multiplier"]


def test_the_stddev_of_a_target_keeps_it_and_hardly_less_does_not(corpus):
    folder = corpus(uses=36)
    policy = (folder / "policy.yaml").read_text().replace("accountant: rdp", "accountant: pld")
    def at(stddev, *more):
        (folder / "policy.yaml").write_text(policy.replace("stddev: 4", f"stddev: {stddev:.9f}"))
        return plan_policy(folder, *more)[1]
    def delta_of(epsilon, mu):  # of one Gaussian (Balle and Wang 2018)
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    for name, own in at(4, "--target-epsilon", "3").items():
        mu = own["most_uses"] ** 0.5 / own["multiplier"]
        assert delta_of(own["epsilon"], mu) == pytest.approx(1e-5, rel=1e-6), "all uses are one Gaussian"
        stddev = 4 * own["factor_for_target"]
        assert at(stddev)[name]["epsilon"] <= 3 < at(stddev * 0.9995)[name]["epsilon"]
        # The Gaussian of sensitivity C that keeps the target, in each of k uses.
        assert delta_of(3, own["clip_norm"] * own["most_uses"] ** 0.5 / stddev) == pytest.approx(1e-5, rel=2e-3)
        unclipped = 4 * own["factor_for_clip_norm"]
        assert at(unclipped)[name]["blocks"][0]["clip"] == pytest.approx(own["clip_norm"], rel=1e-9)
        assert at(unclipped * 0.99)[name]["blocks"][0]["clip"] < own["clip_norm"] * 0.991
    assert at(0.5, "--target-epsilon", "5")["clinical"]["factor_for_target"] == 0, "z = 1 keeps it"


def test_an_amplified_class_is_planned_for_its_schedule(corpus):
    folder = corpus()
    text = (folder / "policy.yaml").read_text()
    text = text.replace("sensitive: true,", "amplified: {rate: 0.2, steps: 40, delta: 0.00001},").replace(
        "most_occurrences: 6", "most_occurrences: 40")
    (folder / "policy.yaml").write_text(text)
    own = plan_policy(folder, "--delta", "1e-7", "--target-epsilon", "2")[1]["clinical"]
    assert own["amplified"] and own["most_uses"] == 40 and own["delta"] == pytest.approx(1e-5, rel=1e-12)
    assert own["required_multiplier"] < 40**0.5, "less than every pattern needs"
    (folder / "policy.yaml").write_text(text.replace("rate: 0.2", "rate: 0.1"))
    result = discreet("plan", "--policy", "policy.yaml", "--config", "train.yaml", cwd=folder)
    assert result.returncode == 2 and "amplified for Poisson sampling at rate 0.1" in result.stderr


def test_a_plan_of_a_policy_has_text_and_a_plot(corpus):
    folder = corpus()
    ask = ("plan", "--policy", "policy.yaml", "--config", "train.yaml")
    result = discreet(*ask, "--target-epsilon", "3", "--plot", "uses.svg", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 100 and "zero_out, by rdp" in result.stdout
    assert (folder / "uses.svg").read_text().count("<polyline") == 2
    for more, named in [(["--delta", "2"], "2"), (["--target-epsilon", "0"], "0"), (["--steps", "3"], "--steps")]:
        result = discreet(*ask, *more, cwd=folder)
        assert (result.returncode, result.stdout) == (2, "") and named in result.stderr
    assert "needed together" in discreet(*ask[:3], cwd=folder).stderr


def test_every_injection_is_charged_as_the_one_gaussian_that_is_released(corpus):
    folder = corpus()
    plans = [json.loads(discreet("check", "train.yaml", "--set", f"corpus.injection={injection}", "--json", cwd=folder).stdout)
             for injection in ("per_step", "per_microbatch", "per_sample")]
    for plan in plans[1:]:
        assert plan["epsilon"]["upper"] == pytest.approx(plans[0]["epsilon"]["upper"], rel=1e-12)
        assert plan["classes"] == plans[0]["classes"] and plan["hash"] != plans[0]["hash"]


@pytest.mark.parametrize("accountant", ["rdp", "moments"])
def test_the_ledger_of_a_run_states_its_policy_its_attestations_and_its_epochs(corpus, accountant):
    folder = corpus(attested=10)
    policy = (folder / "policy.yaml").read_text()
    (folder / "policy.yaml").write_text(policy.replace("accountant: rdp", f"accountant: {accountant}"))
    signed = (folder / "anchors.jsonl").read_bytes()
    # The attestations alone are admitted, by themselves, before there is a run; it takes them as they are.
    alone = discreet("admit", "policy.yaml", "anchors.jsonl", "--at", AT, cwd=folder)
    assert alone.returncode == 0 and "10 admitted, 0 rejected" in alone.stdout
    done = train(folder, "run", "--set", f"accountant={accountant}")
    assert done.returncode == 0, done.stderr
    assert (folder / "anchors.jsonl").read_bytes() == signed

    rows = [json.loads(row) for row in discreet("ledger", "show", "ledger.db", "--limit", "1000", "--json",
                                                cwd=folder).stdout.splitlines()]
    steward = load_pem_public_key((folder / "steward.pub").read_bytes()).public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
    expected = {"accountant": accountant, "clip_norm_floor_nano": 10**7, "noise_multiplier_floor_nano": 3 * 10**8,
                "depth_profile_schema": 1, "public_key": steward, "steward_keys": [steward], "origin": "notes"}
    assert {key: rows[0][key] for key in expected} == expected
    admissions = [row for row in rows if row["type"] == "admission"]
    lines = [json.loads(line) for line in signed.splitlines()]
    hospital = load_pem_public_key((folder / "hospital.pub").read_bytes()).public_bytes(Encoding.Raw, PublicFormat.Raw)
    assert [row["descriptor_hash"] for row in admissions] == [line["descriptor_hash"] for line in lines]
    for row, line in zip(admissions, lines):
        fields = cbor2.loads(bytes.fromhex(line["descriptor"]))
        signed_fields = [fields[i] for i in (2, 3, 4, 5)]
        assert [row[name] for name in ("class", "clip_norm_nano", "noise_multiplier_nano", "uses")] == signed_fields
        assert row["contributor"] == hospital.hex()
    # Signed when it is created, and at the end of each epoch: five of the twelve steps.
    with sqlite3.connect(folder / "ledger.db") as connection:
        sizes = [size for size, in connection.execute("SELECT size FROM checkpoint ORDER BY size")]
    ends = [row["entry"] for row in rows if row["type"] == "epoch_end"]
    assert len(ends) == 3 and sizes == [2, *(entry + 1 for entry in ends)]
    assert discreet("ledger", "verify", "ledger.db", "--public-key", "steward.pub", cwd=folder).returncode == 0
    for said in header(folder, "run")["classes"]:
        assert said["accountant"] == accountant
    most = {row["under"]["class"]: row["cumulative_epsilon_micro"] for row in rows if row["type"] == "use"}
    assert 0 < most["clinical"] < most["open"]


def under(folder, accountant):
    """Accounts the corpus by another accountant; its descriptors are signed again."""
    for name in ("policy.yaml", "train.yaml"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("accountant: rdp", f"accountant: {accountant}"))
    (folder / "anchors.jsonl").unlink()
    done = discreet("attest", "--key", "hospital.key", "--policy", "policy.yaml", "--batch", "batch.csv", "--out",
                    "anchors.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_corpus_may_be_accounted_by_moments_and_its_ledger_header_says_so(corpus):
    folder = under(corpus(), "moments")
    done = train(folder, "run")
    assert done.returncode == 0, done.stderr
    assert {c["accountant"] for c in header(folder, "run")["classes"]} == {"moments"}
    shown = discreet("ledger", "show", "ledger.db", "--limit", "1", "--json", cwd=folder)
    first = json.loads(shown.stdout.splitlines()[0])
    assert (first["type"], first["accountant"]) == ("header", "moments")
    # The contract that a later auditor checks: floors, version of the profiles, and the keys of those who sign.
    assert (first["clip_norm_floor_nano"], first["noise_multiplier_floor_nano"]) == (10_000_000, 300_000_000)
    steward = base64.b64decode("".join((folder / "steward.pub").read_text().splitlines()[1:-1]))[-32:].hex()
    assert (first["depth_profile_schema"], first["public_key"], first["steward_keys"]) == (1, steward, [steward])


def test_the_steps_of_a_ledger_epoch_set_how_often_it_is_signed(corpus):
    """Twelve steps: by default epochs of 5 (200 records by 40), or as many as corpus.ledger_epoch_steps says."""
    folder, found = corpus(uses=20), {}
    for steps in (None, 2, 12):
        settings = ["--set", f"corpus.ledger_epoch_steps={steps}"] if steps else []
        own = ["--set", f"corpus.ledger={steps}.db", "--set", f"corpus.uses={steps}.uses"]
        done = train(folder, f"run{steps}", *settings, *own)
        assert done.returncode == 0, done.stderr
        counts = json.loads(discreet("ledger", "verify", f"{steps}.db", "--json", cwd=folder).stdout)["counts"]
        found[steps] = counts["epochs"], counts["checkpoints"], json.loads(done.stdout)["epsilon"]["upper"]
    assert [found[steps][0] for steps in (None, 2, 12)] == [3, 6, 1]
    # One signed checkpoint for each epoch, beside those of the ledger's beginning and end.
    assert found[2][1] - found[12][1] == 5 and found[None][1] - found[12][1] == 2
    assert found[None][2] == found[2][2] == found[12][2]


def test_a_ledger_reserves_an_epoch_of_shuffled_batches_whole(corpus):
    refused = discreet("check", "train.yaml", "--set", "corpus.ledger_epoch_steps=2", "--set",
                       "sampling_mode=SHUFFLE_WITHOUT_REPLACEMENT_BALLS_AND_BINS_V1", "--set", "target_steps=10",
                       cwd=under(corpus(), "pld"))
    assert refused.returncode == 2 and "corpus.ledger_epoch_steps is 2" in refused.stderr, refused.stderr
