"""Clipped sums against torch.func, layer by layer: 1e-10 in float64, 1e-4 between float32 and float64."""

import copy
from fractions import Fraction

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from discreet.torch.clipper import Clipper  # noqa: E402
from discreet.torch.pieces import Column, Explicit, Outer, Rows, Sum  # noqa: E402
from discreet.torch.rows import BROADCAST, RowsPerRecord  # noqa: E402

torch.set_num_threads(1)
N = 6
# torch.func says so where it works record by record.
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


class Sink:
    """Clips to a bound."""

    def __init__(self, bounds):
        self.bounds = bounds

    def take_norms(self, norms):
        self.norms = norms
        return (self.bounds / (norms + 1e-8)).clamp(max=1)


class Pick(nn.Module):
    """The output of a layer that returns several."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


class SelfAttention(nn.Module):
    def __init__(self, need_weights=False, batch_first=True):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.need_weights = need_weights

    def forward(self, x):
        return self.attention(x, x, x, need_weights=self.need_weights)[0]


class TimeFirst(nn.Module):
    """Attention that wants positions before records."""

    def __init__(self):
        super().__init__()
        self.inner = SelfAttention(batch_first=False)

    def forward(self, x):
        return self.inner(x.transpose(0, 1)).transpose(0, 1)


class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.memory = nn.Linear(8, 8)

    def forward(self, x):
        y = self.memory(x[:, :3])
        return self.attention(x, y, y, need_weights=False)[0]


class Tied(nn.Module):
    """A language model whose output layer is its table."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.mix = nn.Linear(8, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.mix(self.table(ids))))


class Twice(nn.Module):
    """One layer used twice."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


class Scale(nn.Module):
    """Parameters of its own, that no rule knows, beside a layer."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(8))
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        return self.inner(x) * self.gain + self.gain.sum()


class Lora(nn.Module):
    """A frozen layer and two small matrices, by hand."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.down = nn.Linear(8, 2, bias=False)
        self.up = nn.Linear(2, 8, bias=False)

    def forward(self, x):
        return self.base(x) + 2.0 * self.up(self.down(x))


class Positions(nn.Module):
    """Learned positions, looked up once for all records."""

    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(11, 8), nn.Embedding(5, 8)

    def forward(self, ids):
        return self.table(ids) + self.places(torch.arange(ids.shape[1]))


class Flattened(nn.Module):
    """A layer that sees the positions of all records as rows."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x):
        return self.layer(x.reshape(-1, 8)).reshape(x.shape[0], -1, 3)


def bias_only():
    layer = nn.Linear(8, 4)
    layer.weight.requires_grad_(False)
    return layer


def wide():
    return torch.randn(N, 8)


def sequence():
    return torch.randn(N, 5, 8)


def indices():
    return torch.randint(0, 11, (N, 5))


def images(channels=4):
    return torch.randn(N, channels, 9, 8)


LAYERS = {
    "linear": (lambda: nn.Linear(8, 4), wide),
    "linear_without_bias": (lambda: nn.Linear(8, 4, bias=False), wide),
    "bias_only": (bias_only, wide),
    "bias_only_sequence": (bias_only, sequence),
    "linear_gram": (lambda: nn.Linear(8, 40), lambda: torch.randn(N, 2, 8)),
    "linear_direct": (lambda: nn.Linear(8, 4), lambda: torch.randn(N, 64, 8)),
    "linear_four_dimensions": (lambda: nn.Linear(8, 4), lambda: torch.randn(N, 3, 4, 8)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=1), lambda: torch.randn(N, 4, 12)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3), images),
    "conv2d_strided": (lambda: nn.Conv2d(4, 6, (3, 2), stride=2, padding=(1, 2), dilation=2, groups=2), images),
    "conv2d_same_reflect": (lambda: nn.Conv2d(4, 6, 3, padding="same", padding_mode="reflect"), images),
    "conv2d_depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, bias=False), images),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1)), lambda: torch.randn(N, 2, 4, 5, 4)),
    "embedding": (lambda: nn.Embedding(11, 8), indices),
    "embedding_padding": (lambda: nn.Embedding(11, 8, padding_idx=3), indices),
    "layer_norm": (lambda: nn.LayerNorm(8), sequence),
    "layer_norm_two_dimensions": (lambda: nn.LayerNorm((5, 8)), sequence),
    "rms_norm": (lambda: nn.RMSNorm(8), sequence),
    "group_norm": (lambda: nn.GroupNorm(2, 4), images),
    "instance_norm": (lambda: nn.InstanceNorm2d(4, affine=True), images),
    "attention": (SelfAttention, sequence),
    "attention_weights": (lambda: SelfAttention(need_weights=True), sequence),
    "attention_time_first": (TimeFirst, sequence),
    "cross_attention": (CrossAttention, sequence),
    "encoder_layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), sequence),
    "tied": (Tied, indices),
    "twice": (lambda: Twice(nn.Linear(8, 8)), wide),
    "twice_sequence": (lambda: Twice(nn.Linear(8, 8)), sequence),
    "twice_conv": (lambda: Twice(nn.Conv2d(4, 4, 3, padding=1)), images),
    "twice_norm": (lambda: Twice(nn.LayerNorm(8)), sequence),
    "own_parameters": (Scale, sequence),
    "lstm": (lambda: Pick(nn.LSTM(8, 6, batch_first=True)), sequence),
    "gru": (lambda: Pick(nn.GRU(8, 6, num_layers=2, bidirectional=True, batch_first=True)), sequence),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)), wide),
    "lora": (Lora, sequence),
    "positions": (Positions, indices),
    "flattened": (Flattened, sequence),
    "network": (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 3)), wide),
    "network_conv": (lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.GroupNorm(2, 6), nn.ReLU(inplace=True), nn.Flatten(),
                                           nn.LazyLinear(3)), images),
}
LEADING = {"positions": {"places": BROADCAST}, "flattened": {"layer": RowsPerRecord([5])}}
LOOPED = ("lstm", "gru")  # torch.func has no batching rule for them


def loss_of(y, weights):
    y = y.reshape(y.shape[0], -1)
    ramp = torch.cos(torch.arange(y.shape[1], dtype=y.dtype))
    return weights * ((y * ramp).sum(1) + 0.3 * y.square().sum(1))


def weights(dtype):
    return torch.tensor([0.01, 3.0, 0.1, 10.0, 0.5, 1.0], dtype=dtype)


def per_sample(module, x, looped):
    """Of every record by itself: {name: [N, ...]}."""
    parameters = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    w = weights(next(iter(parameters.values())).dtype)

    def loss(parameters, one, weight):
        y = torch.func.functional_call(module, parameters, (one.unsqueeze(0),))
        return loss_of(y, weight.reshape(1)).sum()

    if not looped:
        return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, w)
    out = {name: [] for name in parameters}
    for one, weight in zip(x, w):
        leaves = {name: p.clone().requires_grad_() for name, p in parameters.items()}
        for name, g in zip(leaves, torch.autograd.grad(loss(leaves, one, weight), leaves.values())):
            out[name].append(g)
    return {name: torch.stack(many) for name, many in out.items()}


def clipped(module, x, bound, parts=None, **options):
    """The clipper's sums and norms. bound: of each part."""
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    parts = parts or dict.fromkeys(names, 0)
    bounds = torch.as_tensor(bound, dtype=torch.float64).expand(max(parts.values()) + 1)
    clipper = Clipper(module, parts, mean=True, bounds=lambda: bounds, **options)
    clipper.sink, clipper.probed, clipper.records = Sink(bounds), True, len(x)
    return clipper, next(module.parameters()).dtype


def run(name, module, x, bound, parts=None, **options):
    clipper, dtype = clipped(module, x, bound, parts, **options)
    clipper.learn(LEADING.get(name, {}))
    loss_of(module(x), weights(dtype)).mean().backward()
    sums = dict(clipper.buffers)
    norms = clipper.sink.norms
    clipper.remove()
    return sums, norms


def relative(got, exact):
    size = torch.sqrt(sum(x.double().square().sum() for x in exact.values()))
    away = torch.sqrt(sum((got[k].double().view_as(x) - x.double()).square().sum() for k, x in exact.items()))
    return (away / size).item()


def made(name):
    torch.manual_seed(sum(map(ord, name)))
    make, inputs = LAYERS[name]
    module, x = make(), inputs()
    with torch.no_grad():
        module(x)  # lazy layers
        for p in module.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return module.double().eval(), x.double() if x.is_floating_point() else x


def reference(module, x, bound, parts, looped):
    gradients = per_sample(copy.deepcopy(module), x, looped)
    count = max(parts.values()) + 1
    norms = torch.zeros(N, count, dtype=torch.float64)
    for key, g in gradients.items():
        norms[:, parts[key]] += g.double().flatten(1).square().sum(1)
    norms = norms.sqrt()
    bounds = norms.median(0).values if bound is None else bound
    scales = (bounds / (norms + 1e-8)).clamp(max=1)
    sums = {key: torch.einsum("n,n...->...", scales[:, parts[key]], g.double()) for key, g in gradients.items()}
    assert (scales < 1).any() and (scales == 1).any(), "some records are clipped and some are not"
    return sums, norms, bounds


@pytest.mark.parametrize("name", LAYERS)
def test_sums_are_those_of_every_record_clipped_by_itself(name):
    module, x = made(name)
    parts = {key: 0 for key, p in module.named_parameters() if p.requires_grad}
    exact, norms, bound = reference(module, x, None, parts, name in LOOPED)
    sums, own = run(name, module, x, bound)
    assert relative(sums, exact) < 1e-10
    assert torch.allclose(own, norms, rtol=1e-9) and (own >= norms * (1 - 1e-13)).all()

    narrow = module.float()
    x = x.float() if x.is_floating_point() else x
    sums, own = run(name, narrow, x, bound)
    assert relative(sums, exact) < 1e-4
    assert (own >= norms * (1 - 1e-6)).all(), "a norm in float32 is below the exact one"


@pytest.mark.parametrize("name", ["network", "network_conv", "encoder_layer", "tied", "lora", "lstm"])
@pytest.mark.parametrize("fused", [True, False])
def test_parts_with_bounds_of_their_own_are_clipped_by_themselves(name, fused):
    module, x = made(name)
    layers = {}
    parts = {key: layers.setdefault(key.rpartition(".")[0], len(layers))
             for key, p in module.named_parameters() if p.requires_grad}
    exact, norms, bounds = reference(module, x, None, parts, name in LOOPED)
    sums, own = run(name, module, x, bounds, parts, fused=fused)
    assert relative(sums, exact) < 1e-10
    assert torch.allclose(own, norms, rtol=1e-9)


def test_pieces_agree_with_their_explicit_gradients():
    torch.manual_seed(3)
    a, g = torch.randn(4, 7, 5, dtype=torch.float64), torch.randn(4, 7, 6, dtype=torch.float64)
    outer, rows = Outer(a, g), Rows(torch.randint(0, 9, (4, 7)), g, 9)
    for piece in (outer, rows, outer.cheapest()):
        gradients = piece.explicit(slice(0, 4))
        s = torch.rand(4, dtype=torch.float64)
        assert torch.allclose(piece.norm2(4), gradients.flatten(1).square().sum(1), rtol=1e-12)
        assert torch.allclose(piece.weighted(s), torch.einsum("n,n...->...", s, gradients), rtol=1e-12)
    assert isinstance(Outer(torch.randn(2, 90, 4), torch.randn(2, 90, 4)).cheapest(), Explicit)
    assert isinstance(Outer(torch.randn(2, 3, 64), torch.randn(2, 3, 64)).cheapest(), Outer)


def test_norms_in_float32_are_not_below_those_in_float64():
    # Of 200 draws, sizes and cancellations of many kinds; 0 may be below.
    torch.manual_seed(5)
    for draw in range(200):
        positions, d, p = (int(torch.randint(1, 80, (1,))) for _ in range(3))
        a, g = torch.randn(3, positions, d), torch.randn(3, positions, p)
        if draw % 3 == 0:
            a = a + 10 * torch.randn(1)
        if draw % 3 == 1 and positions > 1:
            g[:, -1] = -g[:, :-1].sum(1)
            a = a * 1e-2 + torch.randn(3, 1, d)
        exact = torch.bmm(g.double().transpose(1, 2), a.double()).flatten(1).square().sum(1)
        for piece in (Outer(a, g), Outer(a, g).cheapest()):
            assert (piece.norm2(3) >= exact).all(), (draw, positions, d, p)
        together = torch.zeros(3, dtype=torch.float64)
        Outer(a, g).add_norm2(together, bias=True)
        assert (together >= exact + g.double().sum(1).square().sum(1)).all(), (draw, positions, d, p)


def exact_square(pieces, shape):
    """|x|² of the first record, in rational numbers."""
    x = {}
    rational = lambda tensor: [[Fraction(v) for v in row] for row in tensor.tolist()]  # noqa: E731
    for piece in pieces:
        if isinstance(piece, Explicit):
            for k, v in enumerate(piece.gradients[0].reshape(-1).tolist()):
                x[k] = x.get(k, 0) + Fraction(v)
            continue
        g = rational(piece.g[0])
        for t, row in enumerate(g):
            if isinstance(piece, Outer):
                a = rational(piece.a[0])[t]
                products = ((o * shape[1] + k, v * w) for o, v in enumerate(row) for k, w in enumerate(a) if v)
            else:
                at = int(piece.ids[0, t]) * shape[1] if isinstance(piece, Rows) else 0
                products = ((at + k, v) for k, v in enumerate(row))
            for k, v in products:
                x[k] = x.get(k, 0) + v
    return sum(v * v for v in x.values())


def rows_that_cancel(kind, positions, width, dtype):
    """[1, positions, width] whose sums over the positions are much smaller than their terms, and are rounded away."""
    g = torch.randn(1, positions, width, dtype=torch.float64)
    tiny = torch.finfo(dtype).eps
    if kind == "cancel":  # large, small, -large
        g[0, 0] = torch.randn(width).double() * 1e3 / tiny
        g[0, -1] = -g[0, 0]
    elif kind == "stagnate":  # each of many is too small to be seen beside the first
        g[0, 1:] = 0.49 * tiny
        g[0, 0] = 1
    elif kind == "subnormal":
        g *= torch.finfo(dtype).tiny * 0.01
    elif kind == "wide":
        g *= 10.0 ** torch.randint(-18, 18, g.shape)
    g = g.to(dtype)
    if kind == "cancel":
        g[0, -1] = -g[0, 0]
    return g


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["cancel", "stagnate", "subnormal", "wide", "plain"])
def test_norms_of_sums_are_not_below_the_exact_ones(kind, dtype):
    torch.manual_seed(11)
    for positions, width in ((2, 1), (3, 2), (9, 33), (700, 3)):
        make = lambda: rows_that_cancel(kind, positions, width, dtype)  # noqa: E731
        g, other = make(), make()
        other[0, :positions // 2] = -g[0, :positions // 2]
        size = 2
        ids = torch.randint(0, size, (1, positions))
        a = torch.where(torch.arange(positions) % 2 == 0, 1.0, -1.0).to(dtype).view(1, positions, 1)
        head = torch.nn.functional.one_hot(ids, size).to(dtype)  # with a = -g it undoes the table
        opposite = Outer(-g.flip(1), head.flip(1))
        explicit = torch.randn(1, size, width).to(dtype)
        for shape, pieces in {
            (1, width): ([Column(g)], [Column(g), Column(other)], [Column(g), Explicit(-g[:, 0])]),
            (size, width): ([Rows(ids, g, size)], [Rows(ids, g, size), Rows(ids, other, size)],
                            [Rows(ids, g, size), opposite], [Rows(ids, g, size), Rows(ids, other, size), opposite],
                            [Rows(ids, g, size), Explicit(explicit)], [opposite, Explicit(-explicit), Explicit(explicit)]),
            (width, 1): ([Outer(a, g), Outer(-a, g)], [Outer(a, g), Explicit(-g[:, 0].unsqueeze(2))]),
        }.items():
            for some in pieces:
                bound = Sum(some, torch.Size(shape)).norm2(1).item() if len(some) > 1 else some[0].norm2(1).item()
                exact = exact_square(some, shape)
                assert Fraction(bound) >= exact, (shape, [type(x).__name__ for x in some], positions, bound, float(exact))
                if kind == "plain" and exact > 1:
                    assert bound <= float(exact) * 1.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_of_a_head_beside_a_table_that_cancels_are_not_below_the_exact_ones(dtype):
    # The products of a with the rows of the table are large, and only rounding is left of their sum.
    torch.manual_seed(12)
    bits, unit = (22, 2.0**20) if dtype == torch.float32 else (40, 2.0**-30)
    for _ in range(50):
        h = torch.randint(-2**bits, 2**bits, (1, 3, 5)).to(dtype) * unit
        h[0, 2] = -h[0, 0] - h[0, 1]  # exactly
        a = torch.randn(1, 1, 5, dtype=dtype) * 10.0 ** torch.randint(-3, 1, (5,))
        pieces = [Outer(a.to(dtype), torch.tensor([[[1.0, 0.0]]], dtype=dtype)),
                  Rows(torch.zeros(1, 3, dtype=torch.long), h, 2)]
        bound = Sum(pieces, torch.Size((2, 5))).norm2(1).item()
        assert Fraction(bound) >= exact_square(pieces, (2, 5))


def test_norms_are_refused_where_subnormals_are_flushed():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush")
    try:
        with pytest.raises(Exception, match="subnormal"):
            Column(torch.randn(2, 3, 4)).norm2(2)
    finally:
        torch.set_flush_denormal(False)


def test_products_of_a_lower_precision_are_refused():
    module, x = made("network")
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(Exception, match="reduced precision"):
            run("network", module, x, 1.0)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_autocast_gradient_checkpointing_and_accumulation_give_the_same_sums():
    module, x = made("network")
    parts = {key: 0 for key, _ in module.named_parameters()}
    exact, _, bound = reference(module, x, None, parts, False)

    class Checkpointed(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)

    sums, _ = run("network", Checkpointed(copy.deepcopy(module)), x.clone().requires_grad_(), bound)
    assert relative({key.removeprefix("inner."): s for key, s in sums.items()}, exact) < 1e-10

    clipper, _ = clipped(module, x, bound)
    for begin in (0, 2):
        rows = slice(begin, 2 if begin == 0 else 6)
        clipper.records = rows.stop - begin
        loss_of(module(x[rows]), weights(torch.float64)[rows]).mean().backward()
    assert relative(clipper.buffers, exact) < 1e-10
    clipper.remove()

    narrow = copy.deepcopy(module).float()
    clipper, _ = clipped(narrow, x, bound)
    clipper.records, clipper.mean = N, False
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = narrow(x.float())
    loss_of(y.float(), weights(torch.float32)).sum().backward()
    assert relative(clipper.buffers, exact) < 0.05  # what bfloat16 activations lose
    assert all(buffer.dtype == torch.float64 for buffer in clipper.buffers.values())
    clipper.remove()


def test_a_layer_used_inside_and_outside_of_a_checkpoint_is_exact_or_refused():
    module, x = made("twice")
    inner = module.layer

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = inner

        def forward(self, x):
            y = torch.utils.checkpoint.checkpoint(lambda z: torch.tanh(self.layer(z)), x, use_reentrant=False)
            return self.layer(y)

    parts = {key: 0 for key, _ in module.named_parameters()}
    exact, _, bound = reference(module, x, None, parts, False)
    sums, _ = run("twice", Mixed(), x.clone().requires_grad_(), bound)
    assert relative(sums, exact) < 1e-10


def test_gradients_that_reach_a_parameter_outside_of_its_layer_are_refused():
    module, x = made("network")
    clipper, dtype = clipped(module, x, 1.0)
    clipper.records = N
    with pytest.raises(Exception, match="outside its layer"):
        (loss_of(module(x), weights(dtype)).mean() + module[0].weight.square().sum()).backward()
    with pytest.raises(Exception, match="outside its layer"):
        F.linear(x, module[0].weight).sum().backward()
    clipper.remove()
