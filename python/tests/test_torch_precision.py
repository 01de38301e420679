"""Half precision: no record's rounding may depend on how many others were drawn."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import discreet  # noqa: E402
from discreet.torch import PrivacyEngine  # noqa: E402

torch.set_num_threads(1)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def clipped_sum(rows, size, *, reduction, dtype=torch.float32, autocast=None, scale=4.0):
    """Of all records at once, divided by the bound: sampling rate 1, without noise."""
    x = torch.randn(size, 20, generator=torch.Generator().manual_seed(2))[size - rows:].to(dtype)
    y = torch.randint(0, 4, (size,), generator=torch.Generator().manual_seed(3))[size - rows:]
    module = network().to(dtype)
    engine = PrivacyEngine(insecure_seed=1)
    module, optimizer, loader = engine.make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1), noise_multiplier=0, max_grad_norm=0.01,
        data_loader=DataLoader(TensorDataset(x, y), batch_size=size, shuffle=True), declared_size=size,
        loss_reduction=reduction)
    # rows < batch_size: every record is drawn, as the rate is 1.
    for x, y in loader:
        with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            loss = F.cross_entropy(scale * module(x).float(), y, reduction=reduction)
        loss.backward()
        # Before it is released, and rounded to the parameters' precision.
        return torch.cat([x.flatten().double() for x in engine._clipper.buffers.values()]) * size / 0.01


def move(size, **options):
    return (clipped_sum(size, size, **options) - clipped_sum(size - 1, size, **options)).norm().item()


@pytest.mark.parametrize("size", [1000, 4000])
@pytest.mark.parametrize("kind", [{"autocast": torch.bfloat16}, {"autocast": torch.float16}, {"dtype": torch.bfloat16},
                                  {"dtype": torch.float16}, {}])
def test_one_record_moves_the_sum_by_at_most_its_bound(size, kind):
    assert move(size, reduction="sum", **kind) <= 1 + 1e-5
    if not kind:
        assert move(size, reduction="mean") <= 1 + 1e-5


class RootMeanSquare(nn.Module):
    """rsqrt in half precision rounds the last elements of a tensor otherwise than the rest."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(32))

    def forward(self, h):
        return self.weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))


@pytest.mark.parametrize("size", [256, 257, 264])
def test_kernels_that_round_their_last_elements_otherwise_are_charged(size, monkeypatch):
    plain = network
    monkeypatch.setitem(globals(), "network", lambda: plain().insert(1, RootMeanSquare()))
    assert move(size, reduction="sum", autocast=torch.bfloat16) <= 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_with_a_mean_loss_is_refused(dtype):
    with pytest.raises(discreet.Error, match="loss_reduction='sum'"):
        move(100, reduction="mean", dtype=dtype)
    with pytest.raises(discreet.Error, match="loss_reduction='sum'"):
        move(100, reduction="mean", autocast=dtype)


def private(module, loss_reduction="mean"):
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(2))
    engine = PrivacyEngine(insecure_seed=1)
    return engine, *engine.make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1), noise_multiplier=1.0,
        data_loader=DataLoader(TensorDataset(x), batch_size=20, shuffle=True), loss_reduction=loss_reduction)


class Between(nn.Module):
    """Layers of float32 with a stretch of half precision between them, which no layer sees."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.narrow = nn.Linear(6, 6), nn.Linear(6, 2), False

    def forward(self, x):
        h = self.first(x)
        return self.last((h.bfloat16() * 1.1).float() if self.narrow else h)


def test_half_precision_that_begins_later_or_between_layers_is_refused():
    module = Between()
    engine, module, optimizer, loader = private(module)
    for (x,) in loader:
        module(x).mean().backward()
        optimizer.step()
    module.narrow = True
    with pytest.raises(discreet.Error, match="bfloat16.*loss_reduction='sum'"):
        for (x,) in loader:
            module(x).mean().backward()
    for (x,) in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(discreet.Error, match="under autocast"):
            module(x)
        break
    assert len(engine.accountant) == 2

    module = Between()
    module.narrow = True
    engine, module, optimizer, loader = private(module, "sum")
    for (x,) in loader:
        module(x).sum().backward()
        optimizer.step()
    assert len(engine.accountant) == 2


def test_a_frozen_part_in_half_precision_counts_too():
    module = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6).bfloat16().requires_grad_(False), nn.Linear(6, 2))
    with pytest.raises(discreet.Error, match="1.weight is torch.bfloat16.*loss_reduction='sum'"):
        private(module)
