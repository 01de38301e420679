"""`discreet account RUN...`: the epsilon of several runs together, against evaluations that share nothing with it."""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree as xml

import numpy as np
import pytest
from command import answer, discreet, refusal
from scipy.optimize import brentq
from scipy.stats import norm

ROWS = 60
CONFIG = """
data: {{format: csv, train: rows.csv, label: kind, classes: [a, b], numeric: {{x: [-4, 4]}}{data}}}
model: {{kind: softmax}}
optimizer: {{rate: 0.5}}
{more}
security:
  differential_privacy:
    target_epsilon: {target}
    target_steps: {steps}
    declared_size: 60
    effective_batch_size: {batch}
    noise_multiplier: {noise}
    {privacy}
"""

BOUNDS = ", private_bounds: [y], private_bounds_noise: 3"
RUNS = {
    "full": dict(steps=5, batch=60, noise=6),
    "full2": dict(steps=9, batch=60, noise=8),
    "bounds": dict(steps=5, batch=60, noise=6, data=BOUNDS),
    "adaptive": dict(steps=5, batch=60, noise=6, privacy="clipping: {norm: adaptive, adaptive: {noise: 9}}"),
    "metrics": dict(steps=5, batch=60, noise=6, privacy="metrics: {release: dp}"),
    "poisson": dict(steps=40, batch=6, noise=1.2),
    "poisson2": dict(steps=25, batch=12, noise=1.5, privacy="target_delta: 1e-6"),
    "bins": dict(steps=20, batch=6, noise=3, privacy="sampling_mode: SHUFFLE_WITHOUT_REPLACEMENT_BALLS_AND_BINS_V1"
                 "\n    subsampling: SHUFFLE_WITHOUT_REPLACEMENT"),
    "zeroed": dict(steps=5, batch=60, noise=6, privacy="adjacency: zero_out"),
    "laplace": dict(steps=3, batch=60, noise=20, privacy="accountant: rdp\n    noise: {family: laplace}\n"
                    "    clipping: {norm: 1}"),
    "public": dict(steps=2, batch=60, noise=6, privacy="secure: false"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    own = random.Random(5)
    # The column whose bounds are released has all records in one bucket, far above the noise.
    rows = [f"{own.gauss(0, 1):.3f},{own.uniform(1.1, 1.9):.3f},{own.choice('ab')}" for _ in range(ROWS)]
    (folder / "rows.csv").write_text("\n".join(["x,y,kind", *rows]) + "\n")
    for name, setting in RUNS.items():
        setting = dict(target=60, data="", more="", privacy="") | setting
        (folder / f"{name}.yaml").write_text(CONFIG.format(**setting))
        done = discreet("train", str(folder / f"{name}.yaml"), "--out", str(folder / name))
        assert done.returncode == 0, name + done.stderr
    return folder


def together(made, *names, more=()):
    return answer("account", *(made / name for name in names), *more)


def gaussian(mu, delta):
    """The epsilon of one Gaussian (Balle and Wang 2018)."""
    def excess(e):
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta
    return brentq(excess, 0, 60, xtol=1e-12)


# mu squared of each run: its steps, and what was released beside them.
SQUARES = {
    "full": 5 / 36, "full2": 9 / 64, "bounds": 5 / 36 + 1 / 9,
    "adaptive": 5 * (1 / 36 + 2 / (4 * 81)),  # two centred counts in each step
}


@pytest.mark.parametrize("names", [["full"], ["full", "full2"], ["bounds"], ["bounds", "full2"], ["adaptive", "bounds"],
                                   ["full", "full2", "bounds", "adaptive"]], ids=" ".join)
def test_runs_with_every_record_in_every_step_are_one_gaussian(made, names):
    out = together(made, *names)
    expected = gaussian(math.sqrt(sum(SQUARES[name] for name in names)), 1e-5)
    # The runs charge for the rounding of their sums too, so they may be slightly above.
    assert expected * (1 - 1e-9) <= out["epsilon"]["upper"] <= expected * (1 + 1e-4)
    for row, name in zip(out["runs"], names):
        assert row["epsilon_alone"] == pytest.approx(gaussian(math.sqrt(SQUARES[name]), 1e-5), rel=1e-4)
        assert row["epsilon_alone"] <= row["claim"]["epsilon"] and row["counted"] == "events"


def test_released_metrics_are_counted(made):
    plain, metrics = (together(made, name)["epsilon"]["upper"] for name in ("full", "metrics"))
    assert metrics > plain * 1.001
    assert together(made, "full2", "metrics")["epsilon"]["upper"] > together(made, "full2", "full")["epsilon"]["upper"] * 1.001


def loss_law(rate, sigma, grid):
    """log dP/dQ under P, P = (1-q) N(0) + q N(1), on a grid."""
    x = np.linspace(-12 * sigma, 1 + 12 * sigma, 100_001)
    density = (1 - rate) * norm.pdf(x, 0, sigma) + rate * norm.pdf(x, 1, sigma)
    loss = np.log(density) - norm.logpdf(x, 0, sigma)
    at = np.rint(loss / grid).astype(int)
    return at, density * (x[1] - x[0])


def by_convolution(steps, delta, grid=5e-4, size=1 << 18):
    """Epsilon of removing a record; steps: (rate, sigma, count). Nearest points of a fine grid: within about 1e-3."""
    spectrum = np.ones(size // 2 + 1, complex)
    for rate, sigma, count in steps:
        at, mass = loss_law(rate, sigma, grid)
        spectrum *= np.fft.rfft(np.bincount(at % size, weights=mass, minlength=size)) ** count
    mass = np.fft.fftshift(np.fft.irfft(spectrum, size))
    loss = (np.arange(size) - size // 2) * grid
    def excess(e):
        return float(mass[loss > e] @ -np.expm1(e - loss[loss > e])) - delta
    return brentq(excess, 0, loss[-1])


def test_poisson_runs_compose_as_a_convolution_of_their_losses_does(made):
    steps = {"poisson": (0.1, 1.2, 40), "poisson2": (0.2, 1.5, 25)}
    out = together(made, "poisson", "poisson2")
    assert out["delta"] == 1e-5, "the largest of the two"
    assert out["epsilon"]["upper"] == pytest.approx(by_convolution(steps.values(), 1e-5), rel=2e-3)
    assert [row["claim"]["delta"] for row in out["runs"]] == [1e-5, 1e-6]
    for row in out["runs"]:
        alone = by_convolution([steps[row["run"].rsplit("/", 1)[1]]], 1e-5)
        assert row["epsilon_alone"] == pytest.approx(alone, rel=2e-3)
    added = sum(row["epsilon_alone"] for row in out["runs"])
    assert out["epsilon"]["upper"] < added
    less = together(made, "poisson", "poisson2", more=["--delta", "1e-7"])
    assert less["epsilon"]["upper"] == pytest.approx(by_convolution(steps.values(), 1e-7), rel=2e-3)
    assert together(made, "poisson2", "poisson")["epsilon"] == out["epsilon"]


def test_two_records_in_every_step_are_a_gaussian_of_twice_the_size(made):
    out = together(made, "full", "full2", more=["--group-size", "2"])
    expected = gaussian(2 * math.sqrt(SQUARES["full"] + SQUARES["full2"]), 1e-5)
    assert expected * (1 - 1e-9) <= out["epsilon"]["upper"] <= expected * (1 + 1e-4)


def test_a_run_that_cannot_be_composed_counts_as_its_claim(made):
    for name in ("bins", "laplace"):
        alone = together(made, name)
        assert alone["epsilon"]["upper"] == alone["runs"][0]["epsilon_alone"] <= alone["runs"][0]["claim"]["epsilon"]
        assert "claim" in refusal("account", made / name, made / "full")
        out = together(made, name, "full", more=["--delta", "3e-5"])
        assert [row["counted"] for row in out["runs"]] == ["claim", "events"] and out["runs"][0]["steps"] is None
        claim = out["runs"][0]["claim"]["epsilon"]
        # Basic composition, with the delta that the claim leaves.
        rest = gaussian(math.sqrt(SQUARES["full"]), 2e-5)
        assert claim < out["epsilon"]["upper"] <= (claim + rest) * (1 + 1e-3)


def test_a_run_cut_short_counts_with_its_plan(made):
    planned = 200_000
    (made / "long.yaml").write_text(CONFIG.format(target=60, data="", more="", privacy="", steps=planned, batch=60, noise=400))
    process = subprocess.Popen([os.environ["DISCREET"], "train", str(made / "long.yaml"), "--out", str(made / "long")],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    trace, deadline = made / "long" / "trace.jsonl", time.monotonic() + 20
    while time.monotonic() < deadline and not (trace.exists() and trace.stat().st_size > 20_000):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.wait()
    out = together(made, "long", "full")
    row = out["runs"][0]
    assert (row["ended"], row["counted"], row["steps"]) == ("interrupted", "events", planned)
    square = planned / 400**2
    assert row["epsilon_alone"] == pytest.approx(gaussian(math.sqrt(square), 1e-5), rel=1e-3)
    assert out["epsilon"]["upper"] == pytest.approx(gaussian(math.sqrt(square + SQUARES["full"]), 1e-5), rel=1e-3)
    assert "planned 200000 steps" in discreet("account", str(made / "long")).stdout


def test_what_promises_nothing_or_cannot_be_composed_is_rejected(made, tmp_path):
    assert "promises nothing (secure is false" in refusal("account", made / "full", made / "public")
    assert "no proof composes the two" in refusal("account", made / "full", made / "zeroed")
    assert "the same run as" in refusal("account", made / "full", made / "full")
    shutil.copytree(made / "full", tmp_path / "copy")
    assert "the same run as" in refusal("account", made / "full", tmp_path / "copy")
    (tmp_path / "copy" / "secret.key").unlink()
    assert "seal not verified" in refusal("account", tmp_path / "copy", made / "full2")
    assert "--steps exclude" in refusal("account", made / "full", "--steps", "3")
    assert "--epsilon exclude" in refusal("account", made / "full", "--epsilon", "3")
    assert "absent" in refusal("account", tmp_path / "absent")


def test_a_run_that_was_edited_is_rejected(made, tmp_path):
    shutil.copytree(made / "full", tmp_path / "run")
    trace = tmp_path / "run" / "trace.jsonl"
    trace.write_text(trace.read_text().replace('"effective_noise_multiplier":', '"effective_noise_multiplier":1', 1))
    sentence = refusal("account", made / "full2", tmp_path / "run")
    assert f"{tmp_path}/run: line 3 does not follow" in sentence
    shutil.copytree(made / "full", tmp_path / "other")
    config = tmp_path / "other" / "config.yaml"
    config.write_text(config.read_text().replace("target_steps: 5", "target_steps: 4"))
    assert "config.yaml has the hash" in refusal("account", tmp_path / "other")


def test_text_has_a_row_for_each_run_and_one_for_all(made):
    result = discreet("account", "full", "full2", "bounds", cwd=made)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("epsilon ≤ ") and lines[0].endswith("at delta = 1e-05, add_remove, for 3 runs together")
    assert [line.split()[0] for line in lines[2:6]] == ["full", "full2", "bounds", "together"]
    assert max(map(len, lines)) <= 100 and "chosen without looking" in result.stdout
    printed = float(lines[0].split()[2])
    assert printed >= together(made, "full", "full2", "bounds")["epsilon"]["upper"]


def test_plot_rises_from_run_to_run(made, tmp_path):
    out = together(made, "full", "full2", "bounds", more=["--plot", tmp_path / "runs.svg"])
    svg = "{http://www.w3.org/2000/svg}"
    root = xml.parse(tmp_path / "runs.svg").getroot()
    points = [tuple(map(float, point.split(","))) for point in root.find(svg + "polyline").get("points").split()]
    assert len(points) == 4 and all(a[1] > b[1] for a, b in zip(points, points[1:]))
    assert json.dumps(out).count("epsilon_alone") == 3
