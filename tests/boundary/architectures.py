"""Random architectures by seed, honest or with one planted coupling.

All of them work on [records, positions, D]: a stem makes it of vectors, sequences, images, token ids or padded token ids;
then come blocks, nested and shared at random; then a head. `draw(seed)` is a case and what was planted: "" or
A1 a layer that mixes or remembers, nested; A2 bfloat16 with a mean loss; A3 mixing behind random numbers; A4 rows that follow
padding; A5 memory; A6 a loss or a mean that couples; "mix" any other mixing of zoo_couplings; "bf16" a sum in bfloat16,
which may be accepted.
"""

from __future__ import annotations

import random

import inputs
import torch
import zoo_couplings as zoo
from oracle import Case
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from zoo_memories import ForEvaluation, average

D, WORDS = 8, 12
ACTIVATIONS = [torch.tanh, F.gelu, F.relu, F.silu, torch.sin]
PLANTS = ["A1", "A2", "A3", "A4", "A5", "A6", "mix", "bf16"]


# ---------------------------------------------------------------- blocks of [n, T, D]

class Block(nn.Module):
    """Modules and a function of them."""

    def __init__(self, function, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.function = function

    def forward(self, h):
        return self.function(h, *self.parts)


class Own(nn.Module):
    """A parameter that no rule knows, around a block."""

    def __init__(self, inner):
        super().__init__()
        self.gain, self.inner = nn.Parameter(1 + 0.3 * torch.randn(D)), inner

    def forward(self, h):
        return self.inner(h) * self.gain


class OwnNorm(nn.Module):
    """As Llama writes it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))

    def forward(self, h):
        return self.weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))


class Transposed(nn.Module):
    """As GPT-2's Conv1D."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.4 * torch.randn(D, D)), nn.Parameter(torch.zeros(D))

    def forward(self, h):
        return torch.addmm(self.bias, h.reshape(-1, D), self.weight).view(h.shape)


class Flattened(nn.Module):
    """A layer that sees the positions of all records as rows."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, h):
        return torch.tanh(self.layer(h.reshape(-1, D))).view(h.shape)


class Adapter(nn.Module):
    def __init__(self, pick):
        super().__init__()
        self.base = nn.Linear(D, D).requires_grad_(False)
        self.down, self.up = nn.Linear(D, pick.choice([1, 2]), bias=False), None
        self.up = nn.Linear(self.down.out_features, D, bias=False)

    def forward(self, h):
        return self.base(h) + 2 * self.up(self.down(h))


class Places(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, D)

    def forward(self, h):
        return h + self.table(torch.arange(h.shape[1]))


class OwnPlaces(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(0.5 * torch.randn(1, 16, D))

    def forward(self, h):
        return h + self.table[:, : h.shape[1]]


def attention(pick):
    options = {"bias": pick.random() < 0.7, "batch_first": pick.random() < 0.7, "add_zero_attn": pick.random() < 0.15}
    weights, causal = pick.random() < 0.3, pick.random() < 0.3

    def run(h, layer):
        x = h if layer.batch_first else h.transpose(0, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(h.shape[1], dtype=h.dtype) if causal else None
        y = layer(x, x, x, attn_mask=mask, need_weights=weights)[0]
        return h + (y if layer.batch_first else y.transpose(0, 1))
    return Block(run, nn.MultiheadAttention(D, pick.choice([1, 2, 4]), **options))


def by_hand(pick):
    count, scale = pick.choice([1, 2]), pick.choice([0.3, 1.0])

    def run(h, q, k, v, o):
        split = lambda x: x.unflatten(-1, (count, -1)).transpose(1, 2)  # noqa: E731
        y = torch.softmax(scale * split(q(h)) @ split(k(h)).transpose(-2, -1), -1) @ split(v(h))
        return h + o(y.transpose(1, 2).flatten(2))
    return Block(run, *(nn.Linear(D, D, bias=pick.random() < 0.7) for _ in range(4)))


def convolution(pick):
    groups = pick.choice([1, 2, 4, D])
    layer = nn.Conv1d(D, D, pick.choice([1, 3]), padding="same", groups=groups, bias=pick.random() < 0.7,
                      padding_mode=pick.choice(["zeros", "zeros", "circular"]))
    if pick.random() < 0.2:
        layer = nn.ConvTranspose1d(D, D, 3, padding=1, groups=groups)
    return Block(lambda h, conv: torch.tanh(conv(h.transpose(1, 2)).transpose(1, 2)), layer)


def recurrence(pick):
    kind = pick.choice([nn.LSTM, nn.GRU, nn.RNN])
    both = pick.random() < 0.3
    layer = kind(D, D // 2 if both else D, pick.choice([1, 1, 2]), batch_first=pick.random() < 0.7, bidirectional=both)
    swap = lambda x: x if layer.batch_first else x.transpose(0, 1)  # noqa: E731
    return Block(lambda h, cell: swap(cell(swap(h))[0]), layer)


def over_positions(h, layer):
    """A normalisation of [records, channels, positions], of at least two positions: some layers reject one."""
    return layer(torch.cat([h, h.cos()], 1).transpose(1, 2)).transpose(1, 2)[:, : h.shape[1]]


def norm(pick):
    kind = pick.randrange(5)
    if kind < 3:
        return [nn.LayerNorm(D), nn.RMSNorm(D), OwnNorm()][kind]
    return Block(over_positions, pick.choice([nn.GroupNorm(2, D), nn.GroupNorm(1, D), nn.InstanceNorm1d(D, affine=True)]))


def linear(pick):
    act, bias = pick.choice(ACTIVATIONS), pick.random() < 0.8
    layer = nn.Linear(D, D, bias=bias)
    if pick.random() < 0.15:
        layer = nn.utils.parametrizations.weight_norm(layer)
    return Block(lambda h, one: h + act(one(h)), layer)


def mlp(pick):
    act = pick.choice(ACTIVATIONS)
    return Block(lambda h, up, down: h + down(act(up(h))), nn.Linear(D, 12), nn.Linear(12, D))


def gated(pick):
    return Block(lambda h, a, b, c: h + c(F.silu(a(h)) * b(h)), *(nn.Linear(D, D, bias=False) for _ in range(3)))


def experts(pick):
    return Block(lambda h, r, *many: sum(r(h).softmax(-1)[..., k:k + 1] * torch.tanh(e(h)) for k, e in enumerate(many)),
                 nn.Linear(D, 2), nn.Linear(D, D), nn.Linear(D, D))


# Blocks that see one position at a time, and blocks that see several: the latter would see padding.
ALONE = [linear, linear, mlp, gated, experts, lambda pick: OwnNorm(), lambda pick: Transposed(), lambda pick: Flattened(),
         Adapter, lambda pick: OwnPlaces()]
ACROSS = [attention, attention, by_hand, convolution, recurrence, norm, norm, lambda pick: Places()]
# A mask follows the strides of what it is drawn for: contiguous, so that the oracle draws it alike.
RANDOM = [lambda pick: Block(lambda h, one: one(h.contiguous()), nn.Dropout(0.2)),
          lambda pick: Block(lambda h: F.dropout(h.contiguous(), 0.2)),
          lambda pick: Block(lambda h: h + zoo.drop_path(h.sin(), 0.3)),
          lambda pick: Block(lambda h: h + 0.1 * torch.randn(h.shape, dtype=h.dtype)),
          lambda pick: Own(Block(lambda h: F.dropout(h.contiguous(), 0.2)))]


def block(pick, depth, kinds):
    """A block, perhaps nested, shared, checkpointed, or below a parameter of its own."""
    chance = pick.random()
    if depth > 0 and chance < 0.45:
        inner = nn.Sequential(*(block(pick, depth - 1, kinds) for _ in range(pick.choice([1, 2, 2]))))
        if chance < 0.10:
            return Own(inner)
        if chance < 0.20:
            return Block(lambda h, one: one(torch.tanh(one(h))), inner)
        if chance < 0.30:
            return Block(lambda h, one: checkpoint(one, h, use_reentrant=False), inner)
        return inner
    return pick.choice(kinds)(pick)


# ---------------------------------------------------------------- stems and heads

class Model(nn.Module):
    def __init__(self, stem, blocks, head, rooted):
        super().__init__()
        self.stem, self.blocks, self.head = stem, nn.Sequential(*blocks), head
        if rooted:
            self.gain = nn.Parameter(1 + 0.3 * torch.randn(D))

    def forward(self, x, **others):
        h = self.blocks(self.stem(x))
        if not x.is_floating_point() and h.shape[:2] == x.shape:  # what blocks put where there is padding
            h = h * (x != 0).to(h.dtype)[..., None]
        return self.head(h * self.gain if hasattr(self, "gain") else h, **others)


class Head(nn.Module):
    """end: h → what the last layer sees."""

    def __init__(self, end, width=3):
        super().__init__()
        self.last, self.end = nn.Linear(D, width), end

    def forward(self, h, **others):
        return self.last(self.end(h, **others))


class Words(nn.Module):
    """Token ids; 0 is padding, and what stands there is 0."""

    def __init__(self, pick, padded=False, **options):
        super().__init__()
        self.table, self.padded = nn.Embedding(WORDS, D, padding_idx=pick.choice([None, 0]), **options), padded

    def forward(self, ids):
        h = self.table(ids)
        return h * (ids != 0).to(h.dtype)[..., None] if self.padded else h


class Dropped(nn.Module):
    """Tokens that are not padding, as rows of a layer; each record gets the sum of its own."""

    def __init__(self, table_too):
        super().__init__()
        self.table, self.layer, self.table_too = nn.Embedding(WORDS, D), nn.Linear(D, D), table_too

    def forward(self, ids):
        kept = ids != 0
        rows = self.table(ids[kept]) if self.table_too else self.table(ids)[kept]
        rows = torch.tanh(self.layer(rows))
        return torch.zeros(len(ids), D, dtype=rows.dtype).index_add(0, kept.nonzero()[:, 0], rows)[:, None]


class Patches(nn.Module):
    def __init__(self, pick):
        super().__init__()
        self.conv = nn.Conv2d(3, D, 3, stride=pick.choice([2, 3]), bias=pick.random() < 0.7)
        self.norm = pick.choice([nn.Identity, lambda: nn.InstanceNorm2d(D), lambda: nn.GroupNorm(2, D)])()

    def forward(self, x):
        return self.norm(self.conv(x)).flatten(2).transpose(1, 2)


def scalar_of(loss):
    class Scalar(Model):
        def forward(self, x, **others):
            return loss(super().forward(x, **others).flatten(1))
    return Scalar


class TokenLoss(Model):
    """Averaged over the tokens of the batch, as Hugging Face's models do."""

    def forward(self, x, labels):
        return F.cross_entropy(super().forward(x).flatten(0, 1), labels.flatten(), ignore_index=-100)


def labelled(records):
    x, weights = inputs.padded(records)
    return {"x": x, "labels": x.masked_fill(x == 0, -100)}, weights


class Mixed(nn.Module):
    """A mixing function of zoo_couplings, of records as vectors."""

    def __init__(self, mix):
        super().__init__()
        self.mix = mix

    def forward(self, h):
        return self.mix(h.flatten(1)).view(h.shape)


# ---------------------------------------------------------------- memories

class Memory(nn.Module):
    """A running mean of what passes, held somewhere; read in the next pass, or in evaluation only."""

    def __init__(self, where, late, noise):
        super().__init__()
        self.kept, self.late, self.noise = ForEvaluation(where), late, noise

    def forward(self, h):
        seen = h.detach().mean(1)
        if not self.late:
            h = h - self.kept.get()
        elif not self.training:
            return h - self.kept.get()
        self.kept.put(average(self.kept.get(), seen))
        return F.dropout(h, 0.05) if self.noise else h


def nested_layer(pick):
    """A1: deep inside a module with a parameter of its own."""
    layer = pick.choice([lambda: nn.BatchNorm1d(D), lambda: nn.BatchNorm1d(D, affine=False), lambda: nn.SyncBatchNorm(D),
                         lambda: nn.InstanceNorm1d(D, track_running_stats=True)])()
    return Own(nn.Sequential(linear(pick), nn.Sequential(Block(over_positions, layer))))


# ---------------------------------------------------------------- drawing

BEHIND_NOISE = [name for name in zoo.mixes if name.removesuffix("_in_training") in zoo.noisy]
PLAIN = [name for name in zoo.mixes if name not in BEHIND_NOISE and name not in ("spectral_norm_of_batch", "whitened")]


def base_records(pick, kind, count, seed):
    g = torch.Generator().manual_seed(seed)
    if kind == "ids":
        xs = list(torch.randint(1, WORDS, (count, 4), generator=g))
        xs[-1] = torch.full((4,), WORDS - 1)
        return xs
    if kind == "ragged":
        lengths = [3, 3, 3] + [(1, 5)[i % 2] for i in range(count - 4)] + [8]
        return [torch.randint(1, WORDS, (k,), generator=g) for k in lengths]
    shape = {"vectors": (6,), "sequences": (pick.choice([2, 4]), 6), "images": (3, 6, 6)}[kind]
    xs = list(torch.randn(count, *shape, generator=g))
    xs[-1] = pick.choice([1, 4, 20]) * xs[-1] + pick.choice([0, 3])
    return xs


def sizes(pick, plant, kind, noisy):
    if plant in ("A2", "bf16"):
        return pick.choice([256, 384, 512])
    if plant == "A4":
        return pick.choice([8, 10, 12])
    most = 16 if noisy or kind == "ragged" else 512
    return pick.choice([n for n in (8, 8, 8, 12, 16, 16, 27, 32, 64, 128, 512) if n <= most])


def draw(seed: int) -> tuple[Case, int, str]:
    """The case, its number of records, and what was planted."""
    pick = random.Random(seed)
    plant = pick.choice(PLANTS) if pick.random() < 0.4 else ""
    kind = pick.choice(["vectors", "sequences", "sequences", "images", "ids", "ids"])
    noisy = plant == "A3" or (plant in ("", "mix") and pick.random() < 0.15)
    ragged = plant == "A4" or (plant == "" and not noisy and pick.random() < 0.12)
    ending = pick.choice(["mean", "positions", "positions", "last"])
    if plant == "A6":
        ending = pick.choice(["tokens", "padded", "scalar"])
        ragged = ending in ("tokens", "padded")
    if ragged:
        kind, ending = "ragged", ending if plant == "A6" else "sum"
    dtype = pick.choice([torch.float64, torch.float32])
    autocast = plant in ("A2", "bf16")
    if autocast:
        dtype = torch.float32
    if noisy:
        dtype = torch.float64  # the oracle draws the same numbers in this precision only
    rooted = pick.random() < 0.25
    bounded = {}
    if plant == "A1" and kind == "ids":
        rooted, bounded = True, {"max_norm": 0.5}
    depth, count = pick.choice([1, 1, 2]), pick.choice([1, 2, 2, 3])
    may_sum = plant != "A2" and ending not in ("tokens", "scalar")
    reduction = "sum" if plant == "bf16" or may_sum and pick.random() < 0.3 else "mean"
    n = sizes(pick, plant, kind, noisy)
    options = {}
    if not noisy and plant not in ("A4", "A5") and pick.random() < 0.25:
        options = pick.choice([{"max_physical_batch_size": n // 2 + 1}, {"max_physical_batch_size": 5},
                               {"gradient_accumulation_steps": 2}])
        if "gradient_accumulation_steps" in options:
            n -= n % 2
    inner = pick.randrange(2**31)
    tied = kind == "ids" and not bounded and pick.random() < 0.3
    clipping = pick.choice(["automatic", "per_layer"]) if not noisy and pick.random() < 0.1 else "flat"

    def make():
        pick = random.Random(inner)
        stem = {"vectors": lambda: nn.Sequential(nn.Linear(6, D), nn.Unflatten(1, (1, D))),
                "sequences": lambda: nn.Linear(6, D), "images": lambda: Patches(pick), "ids": lambda: Words(pick, **bounded),
                "ragged": lambda: Dropped(pick.random() < 0.5) if plant == "A4" else Words(pick, True)}[kind]()
        # After nn.MultiheadAttention a mask follows the strides of its output, which are others than the oracle's.
        kinds = ALONE if ragged else ALONE + [one for one in ACROSS if one is not attention or not noisy]
        blocks = [block(pick, depth, kinds) for _ in range(count)]
        planted = []
        if plant == "A1" and not bounded:
            planted = [nested_layer(pick)]
        elif plant in ("A3", "mix"):
            planted = [Mixed(zoo.mixes[pick.choice(BEHIND_NOISE if plant == "A3" else PLAIN)])]
        elif plant == "A5":
            planted = [Memory(pick.choice(["frozen", "attribute", "list", "dictionary", "closure", "number"]),
                              pick.random() < 0.6, pick.random() < 0.2)]
        if noisy and plant != "A3":
            planted.append(pick.choice(RANDOM)(pick))
        for one in planted:
            one = Own(nn.Sequential(one)) if pick.random() < 0.3 else one
            blocks.insert(pick.randrange(len(blocks) + 1), one)
        ends = {"mean": lambda h: h.mean(1), "sum": lambda h: h.sum(1), "padded": lambda h: h.mean(1),
                "last": lambda h: h[:, -1], "scalar": lambda h: h.sum(1)}
        head = Head(ends.get(ending, lambda h: h), WORDS if ending == "tokens" or tied else 3)
        models = {"scalar": lambda: scalar_of(zoo.scalars[pick.choice(list(zoo.scalars))]), "tokens": lambda: TokenLoss}
        model = models.get(ending, lambda: Model)()(stem, blocks, head, rooted)
        if tied:
            model.head.last.weight = model.stem.table.weight
        return model

    def records(n):
        count = min(n, 9)
        base = base_records(random.Random(inner), kind, count, seed)
        if kind == "ragged":
            # As inputs.ragged: the first three are equal, the others have their length on average, the last divides too.
            g = torch.Generator().manual_seed(seed)
            base[-1] = torch.randint(1, WORDS, (n + 3 if plant == "A4" else 8,), generator=g)
            middle = [base[3 + i % 2] for i in range(n - 4)]
            if n % 2:
                middle[0] = base[0]
            xs = base[:3] + middle + base[-1:]
        else:
            xs = [base[i % (count - 1)] for i in range(n - 1)] + base[-1:]
        return [(x, torch.tensor(0.25 * 2.0 ** (j % 4))) for x, j in zip(xs, weights_by_identity(xs))]

    case = Case(f"seed_{seed}", make, records, dtype=dtype, autocast=autocast, random=noisy, reduction=reduction,
                relative=pick.choice([0.01, 0.3, 1.0, 3.0]), options=options | {"clipping": clipping},
                alike=clipping == "flat", seed=seed,
                collate=labelled if ending == "tokens" else inputs.padded if ragged else inputs.default_collate)
    return case, n, plant


def weights_by_identity(xs: list) -> list[int]:
    """Records of one content have one weight."""
    order: dict[int, int] = {}
    return [order.setdefault(id(x), len(order)) for x in xs]

