"""What is printed is itself a bound: upper ends are rounded up, lower ends down, wherever a person reads them. The oracle
is the exact decimal value of the number that the same command gives under --json."""

import decimal
import json
import random
import re

import pytest
from command import answer, discreet

decimal.getcontext().prec = 60
DRAWN = random.Random(7)
SETTINGS = [(DRAWN.uniform(0.001, 0.2), DRAWN.uniform(0.7, 6), DRAWN.randint(1, 3000), 10 ** DRAWN.uniform(-9, -3))
            for _ in range(12)]
CONFIG = """
data: {format: digits}
model: {kind: softmax}
optimizer: {rate: 1}
security:
  differential_privacy:
    target_epsilon: 29.99999949
    target_delta: 1.23449e-5
    target_steps: 9
    declared_size: 1437
    effective_batch_size: 131
    noise_multiplier: 1.0371
    clipping: {norm: 1}
    metrics: {release: dp}
"""


def exact(number):
    return decimal.Decimal(number)  # of a float: every bit of it


def printed(pattern, text):
    found = re.search(pattern, text)
    assert found, (pattern, text)
    return decimal.Decimal(found.group(1).replace("−", "-"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("printed")
    (folder / "train.yaml").write_text(CONFIG)
    done = discreet("train", "train.yaml", "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "said.txt").write_text(done.stdout)
    return folder


def claim(run):
    return json.loads((run / "run" / "trace.jsonl").read_text().splitlines()[-1])["epsilon"]


@pytest.mark.parametrize("rate,noise,steps,delta", SETTINGS)
def test_account_prints_upper_ends_up_and_lower_ends_down(rate, noise, steps, delta):
    args = ("account", "--sampling-rate", rate, "--noise-multiplier", noise, "--steps", steps, "--delta", delta)
    known = answer(*args)["epsilon"]
    text = discreet(*map(str, args)).stdout
    assert printed(r"epsilon ≤ (\S+) at", text) >= exact(known["upper"])
    assert printed(r"certified +\[(\S+),", text) <= exact(known["lower"])
    assert printed(r"certified +\[\S+, (\S+)\]", text) >= exact(known["upper"])


def test_train_check_trace_and_report_round_the_claim_up(run):
    known = claim(run)
    said = (run / "said.txt").read_text()
    assert printed(r"epsilon +≤ (\S+) \(and", said) >= exact(known["upper"])
    assert printed(r"\(and ≥ (\S+)\) at", said) <= exact(known["lower"])
    planned = answer("check", run / "train.yaml")["epsilon"]["upper"]
    assert printed(r"spend epsilon ≤ (\S+) at", discreet("check", str(run / "train.yaml")).stdout) >= exact(planned)
    text = discreet("trace", str(run / "run")).stdout
    steps = [json.loads(line) for line in (run / "run" / "trace.jsonl").read_text().splitlines()]
    for step in (line for line in steps if line["kind"] == "iter"):
        spent = printed(rf"(?m)^ +{step['t']} +(\S+) ", text)
        assert 0 <= spent - exact(step["cumulative_epsilon_after"]) < exact(1e-3)


@pytest.mark.parametrize("public", [(), ("--public",)])
def test_the_page_states_no_bound_below_the_claim(run, public):
    known = exact(claim(run)["upper"])
    assert discreet("report", str(run / "run"), "--out", str(run / "page.html"), *public).returncode == 0
    page = (run / "page.html").read_text()
    assert printed(r'"big">≤ (\S+?)</p>', page) >= known
    assert printed(r"ε&nbsp;≤&nbsp;(\S+) and", page) >= known
    assert printed(r"factor of at most (\S+) \(that", page) >= known.exp()
    delta = exact(1.23449e-5)
    right = 100 * (1 - (1 - delta) / (1 + known.exp()))
    assert 0 <= printed(r"right at most (\S+) times in 100", page) - right < decimal.Decimal("0.11")
    assert printed(r"ε: from \S+ to (\S+?), ending", page) >= known
    # Delta and the budget have every digit.
    assert "1.23449 × 10<sup>−5</sup>" in page and "1.234 × 10" not in page and "1.235 × 10" not in page
    assert "budget 29.99999949" in page and "ε ≤ 29.99999949 at" in page


def test_the_manifest_states_no_bound_below_the_claim(run):
    assert discreet("keygen", "release", cwd=run).returncode == 0
    said = answer("release", run / "run", "--key", run / "release.key")
    assert 0 <= exact(said["epsilon_upper"]) - exact(claim(run)["upper"]) < exact(2e-6)
    text = discreet("release", str(run / "run"), "--key", str(run / "release.key")).stdout
    assert printed(r"epsilon ≤ (\S+) at", text) >= exact(claim(run)["upper"])
    assert "delta = 1.23449e-05" in text


def test_the_public_report_shows_what_was_released_under_noise_and_nothing_else_of_the_steps(run):
    """Values that metrics.release: dp has paid for are for everyone; the raw ones beside them are not."""
    lines = [json.loads(line) for line in (run / "run" / "trace.jsonl").read_text().splitlines()]
    released = [line["released"]["clip_fraction"] for line in lines if line["kind"] == "iter"]
    assert all(line["released"].keys() == {"clip_fraction", "group_clip_fraction"} for line in lines if line["kind"] == "iter")
    pages = {}
    for public in ((), ("--public",)):
        assert discreet("report", str(run / "run"), "--out", str(run / "page.html"), *public).returncode == 0
        pages[bool(public)] = (run / "page.html").read_text()
    for page in pages.values():
        assert "Clipped records, as released" in page
        figure = re.search(r"clipped: from ([\d.e-]+) to ([\d.e-]+), ending at ([\d.e-]+\d)", page)
        low, high, last = map(float, figure.groups())
        assert last == pytest.approx(max(0, released[-1]), rel=1e-3)
        assert high == pytest.approx(max(released), rel=1e-3)
        assert low == pytest.approx(max(0, min(released)), rel=1e-3, abs=1e-9)
    assert "Gradient norms" in pages[False] and "Gradient norms" not in pages[True]
