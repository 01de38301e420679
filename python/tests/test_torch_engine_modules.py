"""PrivacyEngine: which modules it takes, and what other libraries got wrong."""

import copy
import math

import pytest

torch = pytest.importorskip("torch")
from test_torch_engine import BATCH, ROWS, loader, make, network, steps, weights_of  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import discreet  # noqa: E402
from discreet.torch import PrivacyEngine, fix, register_grad_sampler, validate  # noqa: E402

torch.set_num_threads(1)


# ---------------------------------------------------------------- modules

def test_batch_norm_is_refused_and_fixed():
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 2))
    images = DataLoader(TensorDataset(torch.randn(ROWS, 1, 8, 8), torch.zeros(ROWS).long()), batch_size=8, shuffle=True)
    assert "GroupNorm" in str(validate(module)[0])
    with pytest.raises(discreet.Error, match="GroupNorm"):
        make(module, images)
    fixed = fix(module)
    assert validate(fixed) == [] and isinstance(fixed[1], nn.GroupNorm)
    steps(*make(fixed, images), most=3)
    # A layer of few features is not normalised to zero.
    small = fix(nn.Sequential(nn.Linear(6, 2), nn.BatchNorm1d(2))).eval()
    assert small(torch.randn(5, 6)).std(0).min() > 0
    # Frozen, in eval mode, it is a fixed map; in training mode it is rejected when it runs.
    frozen = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4).requires_grad_(False).eval(), nn.Linear(4, 2))
    assert validate(frozen) == [] and not frozen[1]._forward_pre_hooks, "to look changes nothing"
    engine, module, optimizer, private = make(frozen)
    x, y = next(iter(private))
    F.cross_entropy(module(x), y).backward()
    optimizer.step()
    module.train()
    with pytest.raises(discreet.Error, match="BatchNorm1d"):
        module(x)


def test_layers_that_depend_on_the_batch_are_refused():
    for module, words in ((nn.Embedding(5, 3, max_norm=1.0), "max_norm"), (nn.Embedding(5, 3, sparse=True), "sparse"),
                          (nn.InstanceNorm1d(3, affine=True, track_running_stats=True), "running"),
                          (nn.LSTM(3, 3, num_layers=2, dropout=0.5), "dropout")):
        assert words in str(validate(module)[0])


def test_the_self_check_finds_layers_that_mix_records_and_wrong_rules():
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 2)

        def forward(self, x):
            y = self.layer(x)
            return y - y.mean(0)

    with pytest.raises(discreet.Error, match="layer.weight differs from the one that autograd"):
        make(Mixing())

    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    steps(*make(nn.Sequential(Doubled(6, 2))), most=2)  # by torch.func

    @register_grad_sampler(Doubled)
    def wrong(layer, activations, backprops):
        return {layer.weight: torch.einsum("np,nd->npd", backprops, activations[0]), layer.bias: 2 * backprops}

    with pytest.raises(discreet.Error, match="0.weight differs from the one that autograd"):
        make(nn.Sequential(Doubled(6, 2)))


def test_what_is_trained_is_fixed_when_it_is_made_private():
    module = network()
    module[0].requires_grad_(False)
    engine, module, optimizer, private = make(module)
    batches = iter(private)
    x, y = next(batches)
    F.cross_entropy(module(x), y).backward()
    optimizer.step()
    # Freezing further is fine: what it would have released is not used.
    module[2].bias.requires_grad_(False)
    x, y = next(batches)
    F.cross_entropy(module(x), y).backward()
    before = module[2].bias.clone()
    optimizer.step()
    assert torch.equal(before, module[2].bias) and module[2].bias.grad is None
    module[2].bias.requires_grad_(True)
    x, y = next(batches)
    module[0].requires_grad_(True)
    weights = weights_of(module)
    with pytest.raises(discreet.Error, match="0.weight requires a gradient now"):
        F.cross_entropy(module(x), y).backward()
    with pytest.raises(discreet.Error, match="0.weight requires a gradient now"):
        optimizer.step()
    assert torch.equal(weights, weights_of(module))
    module[0].requires_grad_(False)
    module[2] = nn.Linear(8, 2)
    with pytest.raises(discreet.Error, match="other parameters or layers"):
        optimizer.step()


def test_a_copy_of_the_module_is_an_ordinary_module():
    engine, module, optimizer, private = make()
    twin = copy.deepcopy(module)
    twin(torch.randn(3, 6)).sum().backward()
    assert twin[0].weight.grad is not None and module[0].weight.grad is None
    with torch.no_grad():
        assert torch.equal(twin(torch.ones(2, 6)), module(torch.ones(2, 6)))


# ---------------------------------------------------------------- what peers got wrong, and what was seldom tried


def test_the_rate_of_93_batches_is_one_of_93():
    # int(1 / (1 / 93)) is 92.
    engine, *_ = make(data_loader=loader(930, 10))
    assert engine.steps_per_epoch == 93 and engine._session.sampling()["sampling_rate"] == 10 / 930


def test_every_trained_parameter_is_noised():
    # Of a peer, layers without a rule trained without noise or were left out.
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(6))
            self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 2)

        def forward(self, x):
            return self.head(self.norm(x * self.gain))

    engine, module, optimizer, private = make(Own(), noise_multiplier=100.0)
    steps(engine, module, optimizer, private, most=1)
    for name, p in module.named_parameters():
        assert p.grad.abs().min() > 0 and 0.2 < p.grad.norm() / math.sqrt(p.numel()) / (100.0 / BATCH) < 3, name


@pytest.mark.parametrize("self_check", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_reentrant_checkpoints_are_refused(self_check, last):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.inner = nn.Linear(6, 6), nn.Linear(6, 6)
            self.head = nn.Identity() if last else nn.Linear(6, 6)

        def forward(self, x):
            y = torch.utils.checkpoint.checkpoint(self.inner, self.first(x), use_reentrant=True)
            return self.head(y)

    torch.manual_seed(1)
    module = Checkpointed()
    before = weights_of(module)
    with pytest.raises(discreet.Error, match="use_reentrant=False"):
        engine, module, optimizer, private = make(module, self_check=self_check)
        steps(engine, module, optimizer, private, most=1)
    assert torch.equal(before, weights_of(module)) and all(p.grad is None for p in module.parameters())


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_parameters_of_bfloat16_are_summed_and_noised_in_float64(clipping):
    released = {}
    for dtype in (torch.bfloat16, torch.float32):
        module = network(torch.bfloat16).to(dtype)
        engine, module, optimizer, private = make(module, noise_multiplier=0, clipping=clipping, loss_reduction="sum")
        x, y = next(iter(private))
        F.cross_entropy(module(x.to(dtype)).float(), y, reduction="sum").backward()
        assert all(s.dtype == torch.float64 for s in engine._clipper.buffers.values())
        optimizer.step()
        released[dtype] = torch.cat([p.grad.flatten().float() for p in module.parameters()])
        assert all(p.grad.dtype == dtype for p in module.parameters())
    a, b = released.values()
    assert (a - b).norm() < 0.03 * b.norm()


def test_a_rule_with_other_records_than_the_batch_is_refused():
    class Own(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight)

    @register_grad_sampler(Own)
    def few(layer, activations, backprops):
        return {layer.weight: torch.einsum("ni,nj->nij", backprops, activations[0])[:1]}

    engine, module, optimizer, private = make(Own(6, 2, bias=False), self_check=False)
    with pytest.raises(discreet.Error, match="1 records, but the batch has"):
        steps(engine, module, optimizer, private, most=1)
    assert module.weight.grad is None


@pytest.mark.parametrize("self_check", [True, False])
def test_a_parameter_put_in_place_of_another_is_refused(self_check):
    engine, module, optimizer, private = make(self_check=self_check)
    x, y = next(iter(private))
    module[2].bias = nn.Parameter(torch.zeros(2))
    before = weights_of(module)
    with pytest.raises(discreet.Error, match="other parameters or layers than"):
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    assert torch.equal(before, weights_of(module)) and all(p.grad is None for p in module.parameters())


def test_epsilon_at_a_tiny_delta_charges_what_the_sampler_leaves_out_at_that_epsilon():
    # 2^-127 of a coordinate's noise is left out; at epsilon e^epsilon times as much counts. The truth of one Gaussian step at
    # rate 1, by its closed form, needs delta less that.
    engine, module, optimizer, private = make(data_loader=loader(rows=8, batch=8), noise_multiplier=2.0, target_epsilon=6.0,
                                              epochs=1, engine=PrivacyEngine())
    steps(engine, module, optimizer, private)
    draws = 2 * sum(p.numel() for p in module.parameters())  # steps that are executed again included

    def true_delta(epsilon, mu=0.5):
        below = lambda x: math.erfc(-x / math.sqrt(2)) / 2  # noqa: E731
        return below(mu / 2 - epsilon / mu) - math.exp(epsilon) * below(-mu / 2 - epsilon / mu)

    told = 0
    for exponent in range(5, 37):
        delta = 10.0**-exponent
        try:
            epsilon = engine.get_epsilon(delta)
        except discreet.Error as error:
            assert "larger delta" in error.sentence and exponent > 25
            continue
        told += 1
        left_out = draws * 2.0**-127 * (1 + math.exp(epsilon))
        assert true_delta(epsilon * (1 + 1e-9)) + left_out <= delta * (1 + 1e-9)
    assert told > 20
