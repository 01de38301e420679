"""Honest models with layers whose rows cannot be told apart by records: modules above such layers run record by record.
All of them must be accepted and exact; zoo_honest.py counts them among its own.
"""

import inputs
import torch
from inputs import WIDTH, WORDS
from oracle import Case
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn
from torch.utils.checkpoint import checkpoint
from zoo_couplings import D, Nested, Table

# ---------------------------------------------------------------- rows that follow what a record holds

def dropped_padding(m, ids, h):
    """Layers see the tokens that are not padding, as rows."""
    kept = ids != 0
    out = torch.zeros(*ids.shape, D, dtype=h.dtype).masked_scatter(kept[..., None], torch.tanh(m.first(h[kept])))
    return m.head(out.sum(1))


def dropped_by_nonzero(m, ids, h):
    rows, places = (ids != 0).nonzero(as_tuple=True)
    out = torch.zeros(len(ids), D, dtype=h.dtype).index_add(0, rows, torch.tanh(m.first(h[rows, places])))
    return m.head(out)


def dropped_at_the_root(m, ids, h):
    kept = ids != 0
    words = m.head(torch.tanh(m.first(m.table(ids[kept]))))
    return torch.zeros(len(ids), WORDS, dtype=words.dtype).index_add(0, kept.nonzero()[:, 0], words)


def unique_words(m, ids, h):
    """A table looked up once for every word of the batch."""
    words, where = ids.unique(return_inverse=True)
    return m.head(m.first(m.table(words))[where].sum(1))


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.EmbeddingBag(WORDS, D, mode="sum"), nn.Linear(D, 3)

    def forward(self, ids):
        kept = ids != 0
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), kept.sum(1).cumsum(0)[:-1]])
        return self.head(self.table(ids[kept], offsets))


class Packed(nn.Module):
    """The sum of a recurrent layer's outputs over each record's own steps."""

    def __init__(self, kind):
        super().__init__()
        self.table, self.cell, self.head = nn.Embedding(WORDS, D), kind(D, D, batch_first=True), nn.Linear(D, 3)

    def forward(self, ids):
        lengths = (ids != 0).sum(1).clamp(min=1)
        packed = rnn.pack_padded_sequence(self.table(ids), lengths, batch_first=True, enforce_sorted=False)
        return self.head(rnn.pad_packed_sequence(self.cell(packed)[0], batch_first=True)[0].sum(1))


class Experts(nn.Module):
    """Each token goes to its best experts, which see the tokens that came to them as rows."""

    def __init__(self, count=3, most=2):
        super().__init__()
        self.router, self.most = nn.Linear(D, count, bias=False), most
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(D, 12), nn.SiLU(), nn.Linear(12, D)) for _ in range(count))

    def forward(self, h):
        rows = h.reshape(-1, D)
        weights, chosen = self.router(rows).softmax(-1).topk(self.most, -1)
        out = torch.zeros_like(rows)
        for k, expert in enumerate(self.experts):
            where, rank = (chosen == k).nonzero(as_tuple=True)
            out = out.index_add(0, where, weights[where, rank, None] * expert(rows[where]))
        return h + out.view(h.shape)


# ---------------------------------------------------------------- what all records share

class RelativeBias(nn.Module):
    """Attention with a table of distances, as T5's: looked up once for all records, [positions, positions]."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 3 * D), nn.Linear(D, 3)
        self.distances = nn.Embedding(11, 2)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (2, -1)).transpose(1, 2) for y in self.first(x).chunk(3, -1))
        place = torch.arange(x.shape[1])
        bias = self.distances((place[:, None] - place[None]).clamp(-5, 5) + 5).permute(2, 0, 1)
        return self.last((torch.softmax(q @ k.transpose(-2, -1) + bias[None], -1) @ v).transpose(1, 2).flatten(2))


class FunctionalTable(nn.Module):
    """A layer's weights in another's place: nothing calls the layer."""

    def __init__(self):
        super().__init__()
        self.first, self.places, self.last = nn.Linear(WIDTH, D), nn.Embedding(inputs.LENGTH, D), nn.Linear(D, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x) + self.places.weight[: x.shape[1]]))


class PositionsFirst(nn.Module):
    """A module without a rule that takes [positions, records, D]."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, D), nn.Linear(D, 3)
        self.mix = nn.MultiheadAttention(D, 2, add_zero_attn=True)

    def forward(self, x):
        h = self.first(x).transpose(0, 1)
        return self.last(self.mix(h, h, h)[0].transpose(0, 1))


# ---------------------------------------------------------------- other layers that looked like mixing

class Normalised(nn.Module):
    """Gradients come to the normalisation with the channels last."""

    def __init__(self, norm):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(3, D, 3, stride=3), norm, nn.Linear(D, 3)

    def forward(self, x):
        return self.last(torch.sin(self.norm(self.conv(x)).flatten(2).transpose(1, 2)))


def frozen_batch_norm():
    norm = nn.BatchNorm2d(D).requires_grad_(False).eval()
    norm.running_mean.normal_()
    norm.train = lambda mode: norm
    return norm


class ConvolvedRecurrence(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.cell, self.last = nn.Conv1d(3, D, 3), nn.GRU(D, D, batch_first=True), nn.Linear(D, 3)
        self.gain = nn.Parameter(torch.ones(D))

    def forward(self, x):
        h = F.instance_norm(self.conv(x)).transpose(1, 2) * self.gain
        return self.last(self.cell(h)[0])


class Checkpointed(nn.Module):
    """Around or within modules without a rule."""

    def __init__(self, inside):
        super().__init__()
        self.inside, self.gain = inside, nn.Parameter(torch.ones(D))
        self.first, self.block = nn.Linear(WIDTH, D), Nested(nn.Linear(D, D), after=nn.Tanh())
        self.cell, self.last = nn.LSTM(D, D, batch_first=True), nn.Linear(D, 3)
        if not inside:
            self.gain = None

    def forward(self, x):
        h = checkpoint(self.block, self.first(x), use_reentrant=False)
        h = checkpoint(lambda h: self.cell(h)[0], h, use_reentrant=False)
        return self.last(h * self.gain if self.inside else h)


def spectral(iterations=1):
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, D), n_power_iterations=iterations), nn.Tanh(),
                         nn.Linear(D, 3))


# name: (model, records, collate)
MODELS = {
    "embedding_bag_with_offsets": (Bag, inputs.ragged, inputs.padded),
    "padding_dropped": (lambda: Table(dropped_padding), inputs.ragged, inputs.padded),
    "padding_dropped_by_nonzero": (lambda: Table(dropped_by_nonzero), inputs.ragged, inputs.padded),
    "padding_dropped_before_the_table": (lambda: Table(dropped_at_the_root), inputs.ragged, inputs.padded),
    "unique_words": (lambda: Table(unique_words), inputs.ids),
    "packed_lstm": (lambda: Packed(nn.LSTM), inputs.ragged, inputs.padded),
    "packed_gru": (lambda: Packed(nn.GRU), inputs.ragged, inputs.padded),
    "routed_experts": (lambda: nn.Sequential(nn.Linear(WIDTH, D), Experts(), nn.Linear(D, 3)), inputs.sequences),
    "routed_experts_of_vectors": (lambda: nn.Sequential(nn.Linear(WIDTH, D), Experts(4, 1), nn.Linear(D, 3)), inputs.vectors),
    "routed_experts_of_two_words": (lambda: nn.Sequential(nn.Linear(WIDTH, D), Experts(2, 1), nn.Linear(D, 3)),
                                    lambda n: inputs.vectors(n, 2, WIDTH)),
    "relative_bias": (RelativeBias, inputs.sequences),
    "functional_table": (FunctionalTable, inputs.sequences),
    "positions_first": (PositionsFirst, inputs.sequences),
    "instance_norm_before_transpose": (lambda: Normalised(nn.InstanceNorm2d(D)), inputs.images),
    "affine_instance_norm_before_transpose": (lambda: Normalised(nn.InstanceNorm2d(D, affine=True)), inputs.images),
    "frozen_batch_norm_before_transpose": (lambda: Normalised(frozen_batch_norm()), inputs.images),
    "convolution_before_recurrence": (ConvolvedRecurrence, inputs.signals),
    "checkpoint_around_modules_without_a_rule": (lambda: Checkpointed(False), inputs.sequences),
    "checkpoint_within_a_module_without_a_rule": (lambda: Checkpointed(True), inputs.sequences),
    "spectral_norm": (spectral, inputs.vectors),
}


def cases() -> list[Case]:
    # With this seed both experts see one word of every record that the self-check makes up.
    seeds = {"routed_experts_of_two_words": 22}
    return [Case(name, make, records, seed=seeds.get(name, 0), **({"collate": collate[0]} if collate else {}))
            for name, (make, records, *collate) in MODELS.items()]
