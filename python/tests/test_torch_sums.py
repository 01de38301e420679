"""The clipped sum of many nearly parallel float32 records: one record moves it by at most 1 + 1e-5 of the bound.

What is measured is the sum before noise and before the last rounding to float32, which comes after the noise. The oracle is
the claim itself: all records are clipped to C, and the sums with and without a record are compared in float64. Records differ
by a few per mille, so that roundings of the sum are of random sign; one that is left out changes the place of all after it.
"""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from discreet.torch import PrivacyEngine, register_grad_sampler  # noqa: E402

RECORDS, BOUND = 512, 1e-3


class Flat(nn.Module):
    """A module without a rule: its gradients are explicit."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return torch.tanh(x[..., :3] * self.weight)


class Own(nn.Linear):
    """Has a rule of its own."""

    def forward(self, x):
        return super().forward(x)


@register_grad_sampler(Own)
def own(layer, activations, backprops):
    return {layer.weight: torch.einsum("np,nd->npd", backprops, activations[0]), layer.bias: backprops}


class Twice(nn.Module):
    """A shared parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


class Tied(nn.Module):
    """A table that is the head, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.table(ids)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def values(*shape):
    """Records near one another."""
    def draw(n):
        base = torch.rand(*shape) + 0.5
        return base * (1 + 3e-3 * torch.randn(n, *shape))
    return draw


def sparse(width, used):
    """Only a few of many inputs are not 0: as many coordinates have the whole sum."""
    def draw(n):
        x = torch.zeros(n, width)
        x[:, :used] = values(used)(n)
        return x
    return draw


def tokens(n):
    return torch.tensor([[1, 3, 3, 0]]).repeat(n, 1)


# name: module, inputs, arguments of make_private
KINDS = {
    "linear": (lambda: nn.Linear(3, 2), values(3), {}),
    "linear_one": (lambda: nn.Linear(1, 1, bias=False), values(1), {}),
    "linear_large": (lambda: nn.Linear(64, 64), values(64), {}),
    "linear_sparse": (lambda: nn.Linear(500, 20), sparse(500, 1), {}),
    "positions": (lambda: nn.Linear(3, 2), values(5, 3), {}),
    "positions_large": (lambda: nn.Linear(96, 64), values(3, 96), {}),
    "embedding": (lambda: nn.Embedding(5, 4), tokens, {}),
    "tied": (Tied, tokens, {}),
    "conv": (lambda: nn.Conv1d(2, 2, 3), values(2, 6), {}),
    "norm": (lambda: nn.LayerNorm(4), values(2, 4), {}),
    "generic": (Flat, values(4), {}),
    "registered": (lambda: Own(3, 2), values(3), {}),
    "recurrent": (lambda: nn.RNN(2, 2, batch_first=True), values(3, 2), {}),
    "attention": (Attention, values(3, 8), {}),
    "shared": (Twice, values(4), {}),
    "per_layer": (lambda: nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), values(3), {"clipping": "per_layer"}),
    "per_group": (lambda: nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), values(3),
                  {"clipping": "per_group", "groups": {"0.weight": "a", "0.bias": "a", "2.weight": "b", "2.bias": "b"}}),
    "automatic": (lambda: nn.Linear(3, 2), values(3), {"clipping": "automatic"}),
    "adaptive": (lambda: nn.Linear(3, 2), values(3), {"clipping": "adaptive"}),
    "pieces": (lambda: nn.Linear(3, 2), values(3), {"max_physical_batch_size": 100}),
    "accumulation": (lambda: nn.Linear(3, 2), values(3), {"gradient_accumulation_steps": 4}),
    "sum": (lambda: nn.Linear(3, 2), values(3), {"loss_reduction": "sum"}),
}


def clipped_sum(make, x, **options):
    torch.manual_seed(1)
    module = make()
    size = RECORDS // options.get("gradient_accumulation_steps", 1)
    engine = PrivacyEngine(insecure_seed=1)
    module, optimizer, loader = engine.make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.0), noise_multiplier=0, max_grad_norm=BOUND,
        data_loader=DataLoader(TensorDataset(x), batch_size=size, shuffle=True), declared_size=RECORDS, self_check=True,
        **options)
    for (batch,) in loader:
        optimizer.zero_grad()
        y = module(batch)
        y = (y[0] if isinstance(y, tuple) else y).reshape(len(batch), -1)
        losses = (y * torch.linspace(1, 2, y.shape[1])).sum(1)
        (losses.sum() if options.get("loss_reduction") == "sum" else losses.mean()).backward()
        if engine._batch.final:
            held = torch.cat([s.double().flatten() for s in engine._clipper.buffers.values()]) * RECORDS
            bound = optimizer.max_grad_norm if options.get("clipping") == "adaptive" else BOUND
        optimizer.step()
    return held / bound


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_many_parallel_records_moves_a_float32_sum_by_little_more_than_the_bound(kind):
    make, inputs, options = KINDS[kind]
    torch.manual_seed(0)
    x = inputs(RECORDS)
    whole = clipped_sum(make, x, **options)
    assert RECORDS * 0.5 < whole.norm() < RECORDS * 1.001  # nearly parallel, and clipped
    for out in (0, 200, RECORDS - 1):
        rest = torch.cat([x[:out], x[out + 1:]])
        move = (whole - clipped_sum(make, rest, **options)).norm().item()
        assert move <= 1 + 1e-5, f"record {out} moves the sum by 1 + {move - 1:.2g}"
