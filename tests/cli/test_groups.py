"""Named groups of layers in native training: model.groups in clipping, bounds, noise, public groups and releases."""

import json

from command import answer, discreet

MLP = """
data: {format: digits}
model: {kind: mlp, hidden: [8, 6], groups: {body: [layer0, layer1]}}
optimizer: {rate: 1}
security:
  differential_privacy:
    accountant: rdp
    target_epsilon: 30
    target_steps: 4
    declared_size: 1437
    effective_batch_size: 128
    noise_multiplier: 1
    clipping: {strategy: per_group}
"""


def trained(tmp_path, *settings):
    result = discreet("train", "-", "--out", str(tmp_path / "run"), *(a for s in settings for a in ("--set", s)), input=MLP)
    assert result.returncode == 0, result.stderr
    return json.loads((tmp_path / "run" / "trace.jsonl").read_text().splitlines()[0])["allocation_map"]


def test_a_group_has_its_own_bound_and_noise(tmp_path):
    parts = trained(tmp_path, "clip_norm_map={body: 0.5, layer2: 0.25}", "privacy_allocation=custom",
                    "sigma_map={body: 3, layer2: 4}", "noise_multiplier=2.4")
    assert {name: bound for name, (_, bound) in parts.items()} == {"body": 0.5, "layer2": 0.25}
    assert abs(parts["body"][0] * 2.4 - 3) < 1e-8 and abs(parts["layer2"][0] * 2.4 - 4) < 1e-8
    assert discreet("replay", str(tmp_path / "run")).returncode == 0
    assert answer("report", tmp_path / "run", "--out", tmp_path / "report.html")["ended"] == "completed"


def test_overrides_by_group_reach_their_layers(tmp_path):
    parts = trained(tmp_path, "clipping.strategy=hybrid", "groups={body: {clip_norm: 0.5, sigma_multiplier: 2}}")
    assert parts["body"][1] == 0.5 and parts["body"][0] > 1.5 * parts["layer2"][0]
    assert set(trained(tmp_path / "public", "groups={body: {public: true}}")) == {"layer2"}


def test_layers_that_are_not_there_or_in_two_groups_are_refused():
    for groups, sentence in (("{body: [layer7]}", "model.groups of body has 'layer7', but the layers are layer0, layer1, layer2"),
                             ("{a: [layer0], b: [layer0]}", "model.groups has layer0 in a and in b")):
        result = discreet("check", "-", "--set", f"model.groups={groups}", input=MLP)
        assert result.returncode == 2 and sentence in result.stderr, result.stderr
    result = discreet("check", "-", "--set", "privacy_allocation=custom", "--set", "sigma_map={body: 3, layer2: 4}", input=MLP)
    assert result.returncode == 2 and "set noise_multiplier: 2.4 to draw the noise of the map" in result.stderr


def test_a_configuration_without_groups_keeps_its_hash():
    plain = MLP.replace(", groups: {body: [layer0, layer1]}", "")
    hashes = [json.loads(discreet("check", "-", "--no-data", "--json", *more, input=plain).stdout)["hash"]
              for more in ([], ["--set", "model.groups={}"], ["--set", "model.groups={body: [layer0]}"])]
    assert hashes[0] == hashes[1] != hashes[2]
    assert "groups: null" not in discreet("check", "-", "--resolved", input=plain).stdout
