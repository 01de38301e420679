"""Presets in PyTorch: `extends` is respected, arguments replace what they name, and the header says what ran."""

import json

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import discreet  # noqa: E402
from discreet.torch import PrivacyEngine  # noqa: E402

torch.set_num_threads(1)
ROWS, BATCH = 300, 60


def make(directory=None, private=None, **options):
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    x = torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(2))
    engine = PrivacyEngine(directory=directory, **(private or {}))
    options = {"module": module, "optimizer": torch.optim.SGD(module.parameters(), lr=0.5), "declared_size": ROWS,
               "data_loader": DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=BATCH, shuffle=True)} | options
    by_target = "target_epsilon" in options and "noise_multiplier" not in options and "clipping" not in options
    return engine, *(engine.make_private_with_epsilon if by_target else engine.make_private)(**options)


def train(engine, module, optimizer, loader, epochs=2):
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(module(x), y).backward()
            optimizer.step()


def header(run):
    return json.loads((run / "trace.jsonl").read_text().splitlines()[0])


PRESETS = {
    # strategy, parts, operator, mode, reserve, noise of the first step without an argument
    "llm_flash": ("per_layer", {"0", "2"}, "FlashEfficientClip_v1", "meet_exactly_at_target_steps", 0.08, None),
    "peft_max_utility": ("peft_targeted", {"all"}, "Clip_v1", "fixed", 0.08, 0.7),
    "regulated_fair": ("per_group", {"first", "2"}, "Clip_v1", "meet_exactly_at_target_steps", 0.12, None),
    "frontier_trillion": ("hybrid", {"first", "2"}, "Clip_v1", "dynamic_projection", 0.08, None),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_trains(tmp_path, preset):
    strategy, parts, operator, mode, reserve, noise = PRESETS[preset]
    run = tmp_path / "run"
    made = make(run, epochs=2, target_epsilon=40.0, clipping=None, groups={"0.weight": "first", "0.bias": "first"},
                settings={"extends": preset})
    engine = made[0]
    bounds = engine._session.clip_bounds()
    train(*made)
    assert engine.finish().upper <= 40 and engine.not_private == []
    engine.close()
    found = header(run)
    assert found["clipping_strategy"] == strategy and set(found["allocation_map"]) == parts
    assert found["clip_operator"] == operator and found["fused_kernel"] is (operator == "FlashEfficientClip_v1")
    assert found["dp_mode"] == mode and found["safety_budget_reserve"] == reserve
    steps = [line for line in map(json.loads, (run / "trace.jsonl").read_text().splitlines()) if line["kind"] == "iter"]
    assert len(steps) == 10
    if noise:
        assert steps[0]["noise_scale_sigma"] == noise
    if preset in ("llm_flash", "regulated_fair"):  # their bounds follow the norms, at a cost
        assert engine._session.clip_bounds() != bounds and steps[0]["delta_eps"] > 0
    assert engine.notes[-1].startswith(f"the preset {preset} sets ") and "clipping.strategy" in engine.notes[-1]


def test_hybrid_clips_every_group_and_then_the_record():
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    x = torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    engine, module, optimizer, loader = make(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.5), noise_multiplier=0, epochs=1,
        max_grad_norm=1.2, settings={"extends": "frontier_trillion", "mode": "fixed"},
        data_loader=DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=BATCH, shuffle=True))
    x, y = next(iter(loader))
    optimizer.zero_grad()
    expected = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    with torch.enable_grad():
        for one, label in zip(x, y):
            values = {name: p.detach().requires_grad_() for name, p in module.named_parameters()}
            hidden = torch.relu(one @ values["0.weight"].T + values["0.bias"])
            out = hidden @ values["2.weight"].T + values["2.bias"]
            own = dict(zip(values, torch.autograd.grad(F.cross_entropy(out[None], label[None]), list(values.values()))))
            for layer, bound in zip(("0", "2"), engine._session.clip_bounds()):
                pair = [own[f"{layer}.weight"], own[f"{layer}.bias"]]
                norm = torch.sqrt(sum(g.square().sum() for g in pair))
                for g in pair:
                    g *= min(1.0, bound / norm)
            norm = torch.sqrt(sum(g.square().sum() for g in own.values()))
            for name, g in own.items():
                expected[name] += g * min(1.0, 1.2 / norm) / BATCH
    F.cross_entropy(module(x), y).backward()
    optimizer.step()
    for name, p in module.named_parameters():
        assert torch.allclose(p.grad, expected[name], rtol=1e-6, atol=1e-9)


def test_notes_name_the_parts_of_a_preset_without_effect():
    engine, *_ = make(noise_multiplier=1.0, epochs=1, settings={"extends": "frontier_trillion"})
    assert any(note.startswith("fused_kernel has no effect: the strategy hybrid") for note in engine.notes)
    assert any(note.startswith("parallelism.type 3d resolves to dp_only") for note in engine.notes)
    assert engine.notes[-1] == "the preset frontier_trillion sets clipping.strategy, accountant, mode"


def test_adapters_are_clipped_and_counted_by_the_handler(tmp_path):
    class Adapted(nn.Module):
        """A frozen layer with a low-rank adapter."""

        def __init__(self):
            super().__init__()
            self.base = nn.Linear(6, 2).requires_grad_(False)
            self.down, self.up = nn.Linear(6, 3, bias=False), nn.Linear(3, 2, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    module = Adapted()
    base = module.base.weight.clone()
    made = make(tmp_path / "run", module=module, optimizer=torch.optim.SGD(
        [p for p in module.parameters() if p.requires_grad], lr=0.5), epochs=2, settings={"extends": "peft_max_utility"})
    train(*made)
    made[0].close()
    stats = header(tmp_path / "run")["peft_stats"]
    assert stats == {"parameters": 38, "trainable_parameters": 24, "private_parameters": 24, "adapter_parameters": 0,
                     "noise_reduction_factor": pytest.approx((38 / 24) ** 0.5)}
    assert torch.equal(base, module.base.weight)


def test_arguments_replace_what_they_name_and_a_note_says_so():
    engine, *_ = make(noise_multiplier=2.0, max_grad_norm=0.5, clipping="flat", settings={"extends": "llm_flash"})
    assert engine._session.strategy() == "per_sample" and engine._session.clip_bounds() == [0.5]
    assert engine._session.noise_multiplier() == 2.0
    assert "clipping.strategy per_sample replaces per_layer of the preset llm_flash" in engine.notes
    assert "clipping.norm 0.5 replaces adaptive of the preset llm_flash" in engine.notes
    assert "projection.policy" not in engine.notes[-1]  # no planned steps


def test_a_bound_that_is_fixed_and_adaptive_is_refused_with_both_names():
    for clipping in ("flat", "automatic"):
        with pytest.raises(discreet.Error, match=f"clipping='{clipping}'.*extends 'llm_flash'.*max_grad_norm"):
            make(noise_multiplier=1.0, clipping=clipping, settings={"extends": "llm_flash"})
    engine, *_ = make(noise_multiplier=1.0, clipping="adaptive", settings={"extends": "llm_flash"})
    assert engine._session.strategy() == "adaptive"


def test_a_budget_that_is_asked_for_replaces_the_noise_of_a_preset():
    engine, *_ = make(target_epsilon=3.0, target_delta=1e-5, epochs=2, settings={"extends": "peft_max_utility"})
    assert engine._session.noise_multiplier() > 0.75
    assert any(note.startswith("noise_multiplier has no effect") for note in engine.notes)
    engine, *_ = make(target_epsilon=3.0, target_delta=1e-5, epochs=2, settings={"extends": "frontier_trillion"})
    assert "mode meet_exactly_at_target_steps replaces dynamic_projection of the preset frontier_trillion" in engine.notes


def test_what_a_preset_forbids_is_refused_and_without_noise_nothing_starts():
    with pytest.raises(discreet.Error, match="secure is false, which regulated forbids"):
        make(private={"insecure_seed": 1}, noise_multiplier=1.0, settings={"extends": "regulated_fair"})
    with pytest.raises(discreet.Error, match="did you mean llm_flash"):
        make(noise_multiplier=1.0, settings={"extends": "llm_flsh"})
    with pytest.raises(discreet.Error, match="noise_multiplier is missing"):
        make(settings={"extends": "llm_flash"})
    engine, *_ = make(settings={"extends": "peft_max_utility"})
    assert engine._session.noise_multiplier() == 0.7


def test_per_layer_clipping_without_a_preset_is_fused_and_the_header_says_so(tmp_path):
    engine, *_ = make(tmp_path / "run", noise_multiplier=1.0, clipping="per_layer")
    engine.close()
    assert header(tmp_path / "run")["clip_operator"] == "FlashEfficientClip_v1" and header(tmp_path / "run")["fused_kernel"]


def test_a_run_of_a_preset_is_resumed_by_the_same_preset(tmp_path):
    how = {"noise_multiplier": 1.0, "epochs": 2, "settings": {"extends": "llm_flash"}}
    made = make(tmp_path / "run", **how)
    train(*made, epochs=1)
    made[0].save_checkpoint()
    made[0].close()
    again = make(tmp_path / "run", private={"resume": True}, **how)
    train(*again, epochs=1)
    assert again[0].finish().upper <= 20
