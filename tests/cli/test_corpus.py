"""Signed contributions end to end: keygen, attest, train; what is rejected never reaches a batch."""

import json
import os
import stat
import subprocess
import time

import pytest
from command import discreet
from corpora import AT, amplify, header, train, used


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
    admitted = discreet("admit", "policy.yaml", "anchors.jsonl", "--at", AT,
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
        (f"  at: {AT}\n", "", "corpus.at"),
        (f"at: {AT}", "at: 2036-11-16", "corpus.at is 2036-11-16"),
        (f"at: {AT}", "at: 2020-11-16", "corpus.at is 2020-11-16"),
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


def test_contributions_of_one_contributor_are_totalled(corpus):
    folder = corpus()
    batch = (folder / "batch.csv").read_text()
    (folder / "batch.csv").write_text(batch.replace("p1,", "p0,").replace("p3,", "p0,"))
    (folder / "anchors.jsonl").unlink()
    assert discreet("attest", "--key", "hospital.key", "--policy", "policy.yaml", "--batch", "batch.csv",
                    "--out", "anchors.jsonl", cwd=folder).returncode == 0
    said = discreet("admit", "policy.yaml", "anchors.jsonl", "--at", AT, "--json", cwd=folder)
    totals = json.loads(said.stdout)["contributors"]
    assert len(totals) == 98
    # One open contribution (z = 0.4) and two clinical ones (z = 1): 2.5 + 1 + 1.
    assert totals[0]["contributor"] == "p0" and totals[0]["contributions"] == 3
    assert totals[0]["gdp_mu"] == pytest.approx(4.5)
    assert totals[0]["epsilon_upper"] > totals[1]["epsilon_upper"]
    text = discreet("admit", "policy.yaml", "anchors.jsonl", "--at", AT, cwd=folder).stdout
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
