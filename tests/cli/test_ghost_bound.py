"""The audited bound of ghost clipping: check writes it, and a regulated run starts only with its SHA-256."""

import hashlib
import json

import pytest
from command import discreet

RUN = """
data: {format: digits}
model: {kind: mlp, hidden: [8]}
security:
  differential_privacy:
    regulated: true
    accountant: rdp
    target_epsilon: 30
    target_steps: 3
    declared_size: 1437
    effective_batch_size: 128
    noise_multiplier: 1
    clipping: {strategy: ghost}
"""


def written(path, *settings):
    result = discreet("check", "-", "--ghost-bound", str(path), "--json", *(a for s in settings for a in ("--set", s)), input=RUN)
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert told == {"file": str(path), "ghost_bound_hash": hashlib.sha256(path.read_bytes()).hexdigest()}
    return told["ghost_bound_hash"]


def test_a_regulated_run_starts_only_with_the_hash_of_its_own_bound(tmp_path):
    own = written(tmp_path / "bound.json")
    for command in (["check", "-"], ["train", "-", "--out", str(tmp_path / "refused")]):
        for wrong in ("a" * 64, written(tmp_path / "other.json", "model.hidden=[9]")):
            result = discreet(*command, "--set", f"ghost_bound_hash={wrong}", input=RUN)
            assert result.returncode == 2 and f"ghost_bound_hash is {wrong}" in result.stderr, result.stderr
            assert "discreet check CONFIG --ghost-bound FILE" in result.stderr
    assert not (tmp_path / "refused").exists()
    result = discreet("train", "-", "--out", str(tmp_path / "run"), "--set", f"ghost_bound_hash={own}", input=RUN)
    assert result.returncode == 0, result.stderr
    assert discreet("replay", str(tmp_path / "run")).returncode == 0


def test_the_bound_names_its_version_its_layers_and_what_enters_it(tmp_path):
    written(tmp_path / "bound.json")
    bound = json.loads((tmp_path / "bound.json").read_text())
    assert (bound["format"], bound["bound_version"]) == ("discreet-ghost-bound-1", 1)
    assert {layer["name"]: layer["shape"] for layer in bound["layers"]} == {
        "layer0.weight": [8, 64], "layer0.bias": [8], "layer1.weight": [10, 8], "layer1.bias": [10]}
    assert bound["unit_roundoff"] == {"binary32": 2**-24, "binary64": 2**-53} and bound["accounting_adjustment_factor"] == 1
    # The formula of ghost.md, without its guards for rounding: B records of one position, any of which may move the others.
    records, runs = bound["most_records"], bound["binary32_records"]
    assert 128 < records < 1000 and bound["most_positions"] == 1
    eta = 2 * 1.001 * (records * (runs + 5) * 2**-24 + 4096 * records * (1.01 * records + 16) * 2**-53)
    assert bound["sensitivity_factor"] == pytest.approx(1 + eta, rel=1e-9)


@pytest.mark.parametrize("setting", ["effective_batch_size=64", "accounting_adjustment_factor=2", "model.hidden=[9]"])
def test_other_sizes_have_another_bound_and_other_noise_has_not(tmp_path, setting):
    own = written(tmp_path / "a.json")
    assert own == written(tmp_path / "b.json", "noise_multiplier=3", "target_epsilon=9", "seed=4")
    assert own != written(tmp_path / "c.json", setting)
