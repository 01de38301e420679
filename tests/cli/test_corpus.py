"""Signed contributions end to end: keygen, attest, train; what is rejected never reaches a batch."""

import base64
import csv
import hashlib
import json
import math
import os
import pathlib
import random
import signal
import sqlite3
import stat
import subprocess
import tempfile
import time

import cbor2
import pytest
from command import discreet
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from scipy.stats import norm

NOW = time.gmtime()
TODAY = time.strftime("%Y-%m-%d", NOW)  # a run does not start in the past

CONFIG = """
data:
  format: csv
  train: notes.csv
  test: test.csv
  label: kind
  classes: [a, b]
  numeric: {{x: [-4, 4], y: [-4, 4], z: [-4, 4]}}
model: {{kind: mlp, hidden: [8, 8, 8]}}
optimizer: {{rate: 0.5}}
corpus:
  policy: policy.yaml
  descriptors: anchors.jsonl
  uses: corpus.uses
  ledger_key: steward.key
  at: {today}T00:00:00Z
  injection: {injection}
security:
  differential_privacy:
    accountant: rdp
    adjacency: zero_out
    target_epsilon: 30
    target_steps: {steps}
    declared_size: 200
    effective_batch_size: 40
    clipping: {{norm: 1, ghost: {ghost}}}
"""

POLICY = """
corpus: notes
accountant: rdp
floors: {{clip_norm: 0.01, noise_multiplier: 0.3}}
most_validity_days: 800
epoch_seconds: 86400
retention_epochs: 12
noise: {{stddev: 4, clipping: flat}}
classes:
  clinical: {{clip_norm: 1, noise_multiplier: 1, most_occurrences: {uses}, sensitive: true,
    profile: {{layers: [3, 3]}}}}
  open: {{clip_norm: 2, noise_multiplier: 0.4, most_occurrences: 20, profile: {{whole: true}}}}
keys:
  - {{name: hospital, public_key: {key}, classes: [clinical, open]}}
"""


def write_rows(path, seed, count):
    draw = random.Random(seed)
    rows = []
    for i in range(count):
        kind = "ab"[i % 2]
        shift = 1.5 if kind == "b" else -1.5
        rows.append([f"{draw.gauss(shift, 1):.6f}" for _ in range(3)] + [kind])
    with open(path, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["x", "y", "z", "kind"]] + rows)
    return [",".join(row) for row in rows]


@pytest.fixture
def corpus(tmp_path):
    """A signed corpus: a function of how often clinical records may be used, and of the run."""

    def make(uses=6, steps=12, ghost="true", injection="per_step", attested=100):
        lines = write_rows(tmp_path / "notes.csv", 1, 100)
        write_rows(tmp_path / "test.csv", 2, 50)
        key = json.loads(discreet("keygen", "hospital", "--json", cwd=tmp_path).stdout)
        public = key["public_key"]
        assert discreet("keygen", "steward", cwd=tmp_path).returncode == 0
        (tmp_path / "policy.yaml").write_text(POLICY.format(uses=uses, key=public))
        (tmp_path / "train.yaml").write_text(
            CONFIG.format(steps=steps, ghost=ghost, injection=injection, today=TODAY)
        )
        batch = "contributor,class,anchor,not_before,not_after\n"
        for i, line in enumerate(lines[:attested]):
            kind = "clinical" if i % 2 else "open"
            anchor = hashlib.sha256(line.encode()).hexdigest()
            batch += f"p{i},{kind},{anchor},{NOW.tm_year}-01-01T00:00:00Z,{NOW.tm_year + 1}-02-01T00:00:00Z\n"
        (tmp_path / "batch.csv").write_text(batch)
        done = discreet(
            "attest", "--key", "hospital.key", "--policy", "policy.yaml", "--batch", "batch.csv",
            "--out", "anchors.jsonl", cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return tmp_path

    return make


def train(folder, out, *more, **how):
    return discreet("train", "train.yaml", "--out", out, "--json", *more, cwd=folder, **how)


def header(folder, out):
    for line in (folder / out / "trace.jsonl").read_text().splitlines():
        record = json.loads(line)
        found = find(record, "corpus")
        if found:
            return found
    raise AssertionError("no corpus in the trace")


def find(value, name):
    if isinstance(value, dict):
        if name in value:
            return value[name]
        for inner in value.values():
            found = find(inner, name)
            if found is not None:
                return found
    return None


def used(folder):
    with sqlite3.connect(folder / "corpus.uses") as database:
        tables = [row[0] for row in database.execute("select name from sqlite_master where type='table'")]
        return {t: database.execute(f"select * from {t}").fetchall() for t in tables}


@pytest.mark.parametrize("ghost", ["true", "false"])
def test_a_signed_corpus_trains_and_says_what_it_admitted(corpus, ghost):
    folder = corpus(ghost=ghost)
    done = train(folder, "run")
    assert done.returncode == 0, done.stderr
    said = header(folder, "run")
    assert said["admitted"] == 100 and said["refused"] == {}
    assert {c["class"]: c["contributions"] for c in said["classes"]} == {"clinical": 50, "open": 50}
    for c in said["classes"]:
        # sqrt(k) z, and with it no more than one Gaussian release of multiplier z.
        k, z = (6, 1) if c["class"] == "clinical" else (20, 0.4)
        assert c["noise_multiplier"] >= k**0.5 * z
        assert c["gdp_mu"] == pytest.approx(1 / z)
        assert c["adjacency"] == "zero_out" and c["accountant"] == "rdp"
    assert stat.S_IMODE((folder / "corpus.uses").stat().st_mode) == 0o600


def test_what_is_refused_is_counted_and_not_trained_on(corpus):
    """That the data is then bit for bit that without them: GovernedRun.TakesRefusedRecordsOutOfTheData."""
    folder = corpus(attested=60)
    done = train(folder, "run")
    assert done.returncode == 0, done.stderr
    said = header(folder, "run")
    assert said["admitted"] == 60
    assert said["refused"] == {"NO_ATTESTATION": 40}
    assert "40 NO_ATTESTATION" in done.stdout + done.stderr
    assert json.loads(discreet("ledger", "verify", "ledger.db", "--json", cwd=folder).stdout)["counts"]["admissions"] == 60


def test_an_altered_record_is_no_longer_the_contribution_that_was_signed(corpus):
    folder = corpus()
    text = (folder / "notes.csv").read_text().splitlines()
    text[5] = "4,4,4,a"
    (folder / "notes.csv").write_text("\n".join(text) + "\n")
    done = train(folder, "run")
    assert done.returncode == 0, done.stderr
    assert header(folder, "run")["refused"] == {"NO_ATTESTATION": 1}


def test_uses_are_counted_over_all_runs_and_never_pass_the_cap(corpus):
    folder = corpus(uses=3)
    for out in ["one", "two", "three"]:
        done = train(folder, out)
        assert done.returncode == 0, done.stderr
    admitted = discreet("admit", "policy.yaml", "anchors.jsonl", "--at", f"{TODAY}T00:00:00Z",
                        "--uses", "corpus.uses", "--json", cwd=folder)
    contributions = json.loads(admitted.stdout)["contributions"]
    exhausted = [c for c in contributions if c.get("refusal") == "USES_EXHAUSTED"]
    # 36 steps at rate 0.2: about 7 uses of each wanted, 3 allowed to clinical records, 20 to others.
    assert len(exhausted) >= 45 and {c["class"] for c in exhausted} <= {"clinical", "open"}
    assert sum(c["class"] == "clinical" for c in exhausted) >= 45
    # Nothing public tells: the trace of the last run speaks of admission only.
    assert header(folder, "three")["refused"] == {}


def test_a_run_that_is_executed_again_uses_nothing_twice(corpus):
    folder = corpus(uses=3, steps=6)
    assert train(folder, "run").returncode == 0
    before = used(folder)
    store = (folder / "corpus.uses").read_bytes()
    again = discreet("replay", "run", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert used(folder) == before and (folder / "corpus.uses").read_bytes() == store
    (folder / "corpus.uses").unlink()
    assert discreet("replay", "run", cwd=folder).returncode == 0
    assert not (folder / "corpus.uses").exists()


def test_contributions_are_not_trained_on_with_noise_from_a_public_seed(corpus):
    folder = corpus(steps=3)
    refused = train(folder, "run", "--insecure-seed", "1")
    assert refused.returncode == 2 and "the run is not private" in refused.stderr
    assert not (folder / "ledger.db").exists() and not (folder / "run").exists()


@pytest.mark.parametrize("injection", ["per_microbatch", "per_sample"])
def test_noise_may_be_injected_in_slots(corpus, injection):
    folder = corpus(injection=injection, steps=3)
    done = train(folder, "run")
    assert done.returncode == 0, done.stderr
    step = header(folder, "run")["per_sample_step"]
    if injection == "per_sample":  # both ways to look at a step are reported
        assert step["slots"] > 40 and 0 < step["epsilon_of_sum"] < (step["epsilon_shuffled"] or 300)
    else:
        assert step is None


def test_a_section_that_does_not_fit_is_refused_and_leaves_nothing(corpus):
    folder = corpus()
    good = (folder / "train.yaml").read_text()
    for old, new, says in [
        ("adjacency: zero_out", "adjacency: add_remove", "adjacency"),
        (f"  at: {TODAY}T00:00:00Z\n", "", "corpus.at"),
        (f"at: {TODAY}", "at: 2036-11-16", "corpus.at is 2036-11-16"),
        (f"at: {TODAY}", "at: 2020-11-16", "corpus.at is 2020-11-16"),
        ("  test: test.csv", "  holdout: 0.2", "holdout"),
        ("  uses: corpus.uses\n", "", "corpus.uses"),
        ("  ledger_key: steward.key\n", "", "discreet keygen steward"),
    ]:
        assert old in good
        (folder / "train.yaml").write_text(good.replace(old, new))
        done = train(folder, "run")
        assert done.returncode not in (0, 139), (new, done.stdout)
        assert says in done.stderr + done.stdout
        assert not (folder / "run").exists() or not list((folder / "run").iterdir())
    (folder / "train.yaml").write_text(good)
    policy = (folder / "policy.yaml").read_text()
    (folder / "policy.yaml").write_text(policy.replace("epoch_seconds: 86400", "epoch_seconds: 864000000"))
    done = train(folder, "run")
    assert done.returncode == 2 and "100 OUTSIDE_VALIDITY" in done.stderr


@pytest.mark.parametrize("family", ["laplace", "skellam", "discrete_gaussian", "rounded_gaussian"])
def test_every_family_of_noise_keeps_the_promise_in_its_own_way(corpus, family):
    folder = corpus(ghost="false")
    text = (folder / "train.yaml").read_text()
    noise = f"noise: {{family: {family}}}" if family == "laplace" else f"noise: {{family: {family}, discrete: 0.001953125}}"
    (folder / "train.yaml").write_text(text.replace("adjacency: zero_out", f"adjacency: zero_out\n    {noise}"))
    done = train(folder, "run")
    assert done.returncode == 0, done.stderr
    for c in header(folder, "run")["classes"]:
        k, z = (6, 1) if c["class"] == "clinical" else (20, 0.4)
        if family in ("laplace", "rounded_gaussian"):
            assert c["gdp_mu"] == pytest.approx(1 / z) and c["renyi_rho"] is None
            assert header(folder, "run")["most_of_a_contributor"]["gdp_mu"] > 0
        else:
            assert c["renyi_rho"] == pytest.approx(1 / (2 * z * z)) and c["gdp_mu"] is None
            assert header(folder, "run")["most_of_a_contributor"]["gdp_mu"] is None
        assert c["noise_multiplier"] >= k**0.5 * z
        if family == "laplace":
            # L1 noise needs more of it than a Gaussian would: sqrt(2) / 0.798 for small losses.
            assert 1.7 <= c["noise_multiplier"] / (k**0.5 * z) <= 1.8
    explained = discreet("explain", "anchors.jsonl", "--policy", "policy.yaml", "--hash",
                         json.loads((folder / "anchors.jsonl").read_text().splitlines()[1])["descriptor_hash"],
                         "--noise", family, "--grid", "0.001953125", "--json", cwd=folder)
    assert explained.returncode == 0, explained.stderr
    assert json.loads(explained.stdout)["noise_family"] == family


def test_laplace_noise_is_refused_where_its_accountant_or_clipping_is_missing(corpus):
    folder = corpus(ghost="true")
    text = (folder / "train.yaml").read_text()
    laplace = text.replace("adjacency: zero_out", "adjacency: zero_out\n    noise: {family: laplace}")
    (folder / "train.yaml").write_text(laplace)
    done = train(folder, "run")
    assert done.returncode != 0 and "L1" in done.stderr
    (folder / "train.yaml").write_text(laplace.replace("ghost: true", "ghost: false").replace("accountant: rdp", "accountant: pld"))
    done = train(folder, "run")
    assert done.returncode != 0 and "accountant is pld" in done.stderr


def amplify(folder, rate, steps):
    """Makes the class clinical an amplified one, and signs again."""
    policy = (folder / "policy.yaml").read_text().replace("stddev: 4", "stddev: 1")
    policy = policy.replace("most_occurrences: 6, sensitive: true,",
                            f"most_occurrences: {steps}, sensitive: true, amplified: {{rate: {rate}, steps: {steps}, delta: 0.00001}},")
    (folder / "policy.yaml").write_text(policy)
    (folder / "anchors.jsonl").unlink()
    done = discreet("attest", "--key", "hospital.key", "--policy", "policy.yaml", "--batch", "batch.csv",
                    "--out", "anchors.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr


def test_an_amplified_class_reserves_its_whole_schedule_and_keeps_its_epsilon(corpus):
    folder = corpus(steps=12)
    amplify(folder, rate=0.2, steps=20)
    done = train(folder, "run")
    assert done.returncode == 0, done.stderr
    clinical = next(c for c in header(folder, "run")["classes"] if c["class"] == "clinical")
    assert clinical["most_uses"] == 20 and clinical["gdp_mu"] is None and clinical["delta"] == pytest.approx(1e-5)
    # Less noise than every pattern of 20 uses would need, because nobody learns who was sampled.
    assert clinical["noise_multiplier"] < 20**0.5
    # One Gaussian release of multiplier 1 has epsilon 4.377 at 1e-5; by rdp, looser than the pld the noise was set by.
    assert 4 < clinical["epsilon"] <= 1.3 * 4.378
    # 12 of 20 steps are taken: a second run of 12 has not enough left, whoever was sampled.
    done = train(folder, "second")
    assert done.returncode != 0
    assert "USES_EXHAUSTED" in done.stderr and "12" in done.stderr
    (folder / "train.yaml").write_text((folder / "train.yaml").read_text().replace("target_steps: 12", "target_steps: 8"))
    assert train(folder, "third").returncode == 0


def test_an_amplified_class_is_refused_another_sampler_or_noise(corpus):
    folder = corpus(steps=4)
    amplify(folder, rate=0.1, steps=20)
    done = train(folder, "run")  # samples at 0.2
    assert done.returncode != 0 and "at rate 0.1" in done.stderr
    amplify_text = (folder / "policy.yaml").read_text().replace("rate: 0.1", "rate: 0.2")
    (folder / "policy.yaml").write_text(amplify_text)
    good = (folder / "train.yaml").read_text()
    (folder / "train.yaml").write_text(good.replace("ghost: true", "ghost: false").replace(
        "adjacency: zero_out", "adjacency: zero_out\n    noise: {family: laplace}"))
    done = train(folder, "run")
    assert done.returncode != 0 and "amplified" in done.stderr and "laplace" in done.stderr


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


def test_contributions_of_one_contributor_are_totalled(corpus):
    folder = corpus()
    batch = (folder / "batch.csv").read_text()
    (folder / "batch.csv").write_text(batch.replace("p1,", "p0,").replace("p3,", "p0,"))
    (folder / "anchors.jsonl").unlink()
    assert discreet("attest", "--key", "hospital.key", "--policy", "policy.yaml", "--batch", "batch.csv",
                    "--out", "anchors.jsonl", cwd=folder).returncode == 0
    said = discreet("admit", "policy.yaml", "anchors.jsonl", "--at", f"{TODAY}T00:00:00Z", "--json", cwd=folder)
    totals = json.loads(said.stdout)["contributors"]
    assert len(totals) == 98
    # One open contribution (z = 0.4) and two clinical ones (z = 1): 2.5 + 1 + 1.
    assert totals[0]["contributor"] == "p0" and totals[0]["contributions"] == 3
    assert totals[0]["gdp_mu"] == pytest.approx(4.5)
    assert totals[0]["epsilon_upper"] > totals[1]["epsilon_upper"]
    text = discreet("admit", "policy.yaml", "anchors.jsonl", "--at", f"{TODAY}T00:00:00Z", cwd=folder).stdout
    assert "contributor p0: 3 contributions, together epsilon ≤" in text
    assert train(folder, "run").returncode == 0
    assert header(folder, "run")["most_of_a_contributor"] == {"contributions": 3, "gdp_mu": pytest.approx(4.5)}


def test_a_run_that_goes_on_in_another_environment_uses_contributions_anew(corpus):
    """Other matrix kernels release other bits: what is executed again is another use."""
    folder = corpus(uses=6, steps=2000)
    text = (folder / "train.yaml").read_text()
    (folder / "train.yaml").write_text(text + "run: {checkpoint_every: 100}\n")
    elsewhere = {**os.environ, "OPENBLAS_CORETYPE": "Nehalem"}
    running = subprocess.Popen([os.environ["DISCREET"], "train", "train.yaml", "--out", "run"], cwd=folder,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    trace = folder / "run" / "trace.jsonl"
    for _ in range(5000):  # until steps after the first checkpoint were released
        if trace.exists() and trace.read_bytes().count(b"\n") > 110:
            break
        time.sleep(0.002)
    running.kill()
    running.communicate()
    before = used(folder)
    done = train(folder, "run", "--resume", env=elsewhere)
    assert done.returncode == 0, done.stderr
    after = used(folder)
    assert len(before["runs"]) == 1 and len(after["runs"]) == 2
    # What was reserved stays reserved, and nobody passes the cap over both identities.
    assert set(before["reservations"]) <= set(after["reservations"])
    granted = {}
    for _, _, contribution, uses, got in after["reservations"]:
        granted[contribution] = granted.get(contribution, 0) + uses * got
    caps = {row[0]: row[3] for row in after["contributions"]}
    assert caps and all(count <= caps[c] for c, count in granted.items())


@pytest.mark.parametrize("injection", ["per_step", "per_microbatch", "per_sample"])
def test_check_says_what_a_governed_run_will_do_and_writes_nothing(corpus, injection):
    folder = corpus(injection=injection)
    before = sorted(path.name for path in folder.iterdir())
    checked = discreet("check", "train.yaml", "--json", cwd=folder)
    assert checked.returncode == 0, checked.stderr
    assert sorted(path.name for path in folder.iterdir()) == before
    plan = json.loads(checked.stdout)
    done = json.loads(train(folder, "run").stdout)
    assert plan["epsilon"] == done["epsilon"] and plan["steps"] == done["steps"] == 12
    # The classes' own noise and bounds; the configuration's mean nothing here.
    classes = {each["class"]: each for each in header(folder, "run")["classes"]}
    assert {each["class"]: each["noise_multiplier"] for each in plan["classes"]} == {
        name: each["noise_multiplier"] for name, each in classes.items()}
    assert all(each["contributions"] == 50 and each["clip_norm"] for each in plan["classes"])
    assert "noise_multiplier" not in plan
    text = discreet("check", "train.yaml", cwd=folder).stdout
    assert "class          clinical: 50 contributions" in text
    assert "  noise          " not in text and "  clipping       " not in text


def test_check_of_a_corpus_fails_as_its_run_would(corpus):
    folder = corpus(attested=1)
    for setting in ("corpus.policy=absent.yaml", "corpus.uses=absent/corpus.uses", "corpus.at=null", "data.format=digits",
                    "corpus.ledger_key=null"):
        checked = discreet("check", "train.yaml", "--set", setting, cwd=folder)
        trained = discreet("train", "train.yaml", "--set", setting, "--out", "run", cwd=folder)
        assert checked.returncode == trained.returncode != 0, setting
        assert checked.stderr == trained.stderr, setting


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
    alone = discreet("admit", "policy.yaml", "anchors.jsonl", "--at", f"{TODAY}T00:00:00Z", cwd=folder)
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
