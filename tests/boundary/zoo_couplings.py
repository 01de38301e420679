"""Models in which one record changes what others contribute, a few lines each. All of them must be rejected.

`mixes` are functions between two layers; they are tried between layers with rules, and below a parameter of the root (where
the whole model is one layer without a rule). `models` are whole modules. Memories are in zoo_memories.py.
"""

import inputs
import torch
from mixing import (
    MixedBackward,
    NormalisedBackward,
    attention_across,
    capacity,
    content_dropout,
    drop_path,
    expert_choice,
    fake_quantised,
    frequency_weighted,
    ghost,
    hooked_gradient,
    in_place,
    looped,
    neighbour,
    standardized,
    whitened,
)
from oracle import Case
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

D = 8


class Between(nn.Module):
    """Two layers and a function between them."""

    def __init__(self, mix):
        super().__init__()
        self.first, self.second = nn.Linear(inputs.WIDTH, D), nn.Linear(D, 3)
        self.mix = mix

    def forward(self, x):
        return self.second(self.mix(torch.tanh(self.first(x))))


class InTraining(nn.Module):
    """As BatchNorm and Dropout: in evaluation it does nothing."""

    def __init__(self, mix):
        super().__init__()
        self.mix = mix

    def forward(self, h):
        return self.mix(h) if self.training else h


class Rooted(Between):
    """The same below a parameter of the root."""

    def __init__(self, mix):
        super().__init__(mix)
        self.gain = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return super().forward(x) * self.gain


mixes = {
    "mean_of_records": lambda h: h - h.mean(0),
    "standardized": standardized,
    "functional_batch_norm": lambda h: F.batch_norm(h, None, None, training=True),
    "layer_norm_over_records": lambda h: F.layer_norm(h.t(), (len(h),)).t(),
    "normalize_over_records": lambda h: F.normalize(h, dim=0),
    "softmax_over_records": lambda h: h.softmax(0),
    "log_softmax_over_records": lambda h: h.log_softmax(0),
    "divided_by_root_of_count": lambda h: h / len(h) ** 0.5,
    "divided_by_count": lambda h: h / len(h),
    "shifted_by_count": lambda h: h + 0.01 * len(h),
    "scaled_by_largest": lambda h: h / h.abs().max(),
    "scaled_by_deviation": lambda h: h / (h.std() + 0.1),
    "clipped_together": lambda h: h * (1.5 / h.norm()).clamp(max=1),
    "minus_median": lambda h: h - h.median(0).values,
    "minus_quantile": lambda h: h - h.quantile(0.75, dim=0),
    "spectral_norm_of_batch": lambda h: h / torch.linalg.matrix_norm(h, 2),
    "whitened": whitened,
    "ghost_batch_norm": ghost,
    "roll": lambda h: h + h.roll(1, 0),
    "flip": lambda h: h + h.flip(0),
    "concatenated_shift": lambda h: 0.5 * h + torch.cat([h[1:], h[:1]]),
    "cumulative_sum": lambda h: h.cumsum(0),
    "cumulative_maximum": lambda h: h.cummax(0).values,
    "differences": lambda h: h - torch.cat([h[:1], h[:-1]]),
    "sorted_over_records": lambda h: h.sort(0).values,
    "rank_over_records": lambda h: h * h.argsort(0).argsort(0).to(h.dtype),
    "topk_gate": lambda h: h * (h >= h.topk(2, 0).values[-1]).to(h.dtype),
    "largest_record_for_all": lambda h: h + h[h.norm(dim=1).argmax()],
    "mixup_reversed": lambda h: 0.7 * h + 0.3 * h.flip(0),
    "mixup_random": lambda h: 0.7 * h + 0.3 * h[torch.randperm(len(h))],
    "attention_across_records": attention_across,
    "similarity_matrix": lambda h: torch.tanh(h @ h.t()) @ h,
    "nearest_neighbour": neighbour,
    "convolution_over_records": lambda h: F.avg_pool1d(h.t()[None], 3, 1, 1)[0].t(),
    "reshaped_columns": lambda h: h.t().reshape(h.shape),
    "router_with_capacity": capacity,
    "expert_choice": expert_choice,
    "branch_on_batch": lambda h: h if h.sum() > 0 else -h.square(),
    "early_exit": lambda h: h if (h.abs().amax(1) > 0.6).all() else h * 0.3,
    "loop_on_batch": looped,
    "vote_of_batch": lambda h: h * torch.sign(h.sum()),
    "fake_quantised": fake_quantised,
    "dropout_by_content": content_dropout,
    "frequency_weighted": frequency_weighted,
    "in_place_neighbour": in_place,
    "backward_mixes": MixedBackward.apply,
    "backward_normalises": NormalisedBackward.apply,
    "hook_on_tensor_mixes": hooked_gradient,
    "checkpointed_mix": lambda h: checkpoint(standardized, h, use_reentrant=False),
}
# Behind random numbers.
noisy = {
    "statistics_and_functional_dropout": lambda h: F.dropout(standardized(h), 0.2),
    "statistics_and_noise": lambda h: standardized(h) + 0.01 * torch.randn_like(h),
    "statistics_and_drop_path": lambda h: h + drop_path(standardized(h)),
    "statistics_and_rrelu": lambda h: F.rrelu(standardized(h), training=True),
    "rrelu": lambda h: F.rrelu(h, training=True),  # draws a number for every negative element: who comes first shifts the rest
    "count_and_noise": lambda h: h / len(h) ** 0.5 + 1e-3 * torch.randn_like(h),
    "roll_and_dropout": lambda h: h + F.dropout(h.roll(1, 0), 0.1),
    "attention_across_and_drop_path": lambda h: h + drop_path(attention_across(h)),
    "noise_by_largest": lambda h: h + h.abs().max().detach() * 0.1 * torch.randn_like(h),
}


for name, noisy_mix in noisy.items():
    mixes[name] = noisy_mix
    mixes[name + "_in_training"] = InTraining(noisy_mix)
for name in ("standardized", "divided_by_root_of_count", "roll", "attention_across_records"):
    mixes[name + "_in_training"] = InTraining(mixes[name])


# Below a root that runs each record alone there is no one to mix with.
harmless_below_root = ["mixup_random", "dropout_by_content", "backward_mixes", "hook_on_tensor_mixes"]


# ---------------------------------------------------------------- whole models

class Nested(nn.Module):
    """A layer below a root that has a parameter of its own."""

    def __init__(self, layer, before=None, after=None):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))
        self.body = nn.Sequential(*[m for m in (before, nn.Sequential(layer), after) if m is not None])

    def forward(self, x):
        return self.body(x) * self.gain


class TimeMajor(nn.Module):
    """A layer that takes positions first and is given records first."""

    def __init__(self, layer, call):
        super().__init__()
        self.layer, self.call, self.head = layer, call, nn.Linear(D, 3)
        self.first = nn.Linear(inputs.WIDTH, D)

    def forward(self, x):
        return self.head(self.call(self.layer, self.first(x)))


class Table(nn.Module):
    """Of a table looked up by token ids [records, positions], then `body` of [records, positions, D]."""

    def __init__(self, body, **options):
        super().__init__()
        self.table = nn.Embedding(inputs.WORDS, D, **options)
        self.first, self.head = nn.Linear(D, D), nn.Linear(D, inputs.WORDS)
        self.body = body

    def forward(self, ids, **others):
        return self.body(self, ids, self.table(ids), **others)


def padded_mean(m, ids, h):
    """A mean over positions, padded ones too."""
    return m.head(torch.tanh(m.first(h)).mean(1))


def padded_attention(m, ids, h):
    """Attention without a mask sees the padding."""
    q = m.first(h)
    return m.head(F.scaled_dot_product_attention(q, h, h).sum(1))


def from_the_end(m, ids, h):
    """The last position, padded or not."""
    return m.head(torch.tanh(m.first(h[:, -1] + h[:, 0])))


def places_from_the_end(m, ids, h):
    """Positions are counted from the padded length."""
    place = torch.arange(ids.shape[1], 0, -1).to(h.dtype)[None, :, None]
    kept = (ids != 0).to(h.dtype)[..., None]
    return m.head((torch.tanh(m.first(h + 0.1 * place)) * kept).sum(1))


def language_model(m, ids, h, labels):
    """The loss of a causal model, averaged over the tokens of the batch that are not padding."""
    logits = m.head(torch.tanh(m.first(h)))
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)


def with_logits(m, ids, h, labels):
    logits = m.head(torch.tanh(m.first(h)))
    return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100), "logits": logits}


def document_frequency(m, ids, h):
    seen = F.one_hot(ids, inputs.WORDS).amax(1).sum(0).to(h.dtype)
    return m.head((torch.tanh(m.first(h)) / seen[ids][..., None]).sum(1))


class Packed(nn.Module):
    """A recurrent layer whose mean is over all steps of the packed batch."""

    def __init__(self):
        super().__init__()
        self.table, self.cell, self.head = nn.Embedding(inputs.WORDS, D), nn.LSTM(D, D, batch_first=True), nn.Linear(D, 3)

    def forward(self, ids):
        lengths = (ids != 0).sum(1).clamp(min=1)
        packed = nn.utils.rnn.pack_padded_sequence(self.table(ids), lengths, batch_first=True, enforce_sorted=False)
        rows = self.cell(packed)[0].data
        return self.head(rows.mean(0, keepdim=True).expand(len(ids), D))


class Scalar(nn.Module):
    """A model that returns its loss."""

    def __init__(self, loss, rooted=False):
        super().__init__()
        self.first, self.second = nn.Linear(inputs.WIDTH, D), nn.Linear(D, 3)
        if rooted:
            self.gain = nn.Parameter(torch.ones(3))
        self.loss = loss

    def forward(self, x):
        y = self.second(torch.tanh(self.first(x)))
        return self.loss(y * self.gain if hasattr(self, "gain") else y)


def contrastive(y):
    y = F.normalize(y, dim=1)
    return F.cross_entropy(5 * y @ y.detach().roll(1, 1).t(), torch.arange(len(y)))


def kinds(y):
    """Two classes, of which every few records have both."""
    return (torch.sin(20 * y[:, 0].detach()) > 0).to(y.dtype)


def class_balanced(y):
    positive = kinds(y)
    weight = positive / positive.sum().clamp(min=1) + (1 - positive) / (1 - positive).sum().clamp(min=1)
    return (weight * y.square().sum(1)).sum()


def ranking(y):
    s = y[:, 0]
    return F.softplus(s[:, None] - s[None, :]).mean()


def variance_penalty(y):
    return y.square().mean() + F.relu(1 - y.std(0, correction=0)).mean()


def balanced_router(y):
    """Load balancing: the fraction of records times the mean probability of every expert."""
    p = y.softmax(1)
    load = F.one_hot(p.argmax(1), 3).to(y.dtype).mean(0)
    return y.square().sum(1).mean() + (load * p.mean(0)).sum()


scalars = {
    "contrastive_loss": contrastive,
    "class_balanced_loss": class_balanced,
    "ranking_loss": ranking,
    "variance_penalty": variance_penalty,
    "load_balancing_loss": balanced_router,
    "root_mean_square_loss": lambda y: y.square().mean().sqrt(),
    "exponential_of_mean_loss": lambda y: torch.exp(y.square().mean()),
    "logarithm_of_mean_loss": lambda y: torch.log(y.exp().sum(1).mean()),
    "largest_loss": lambda y: y.square().sum(1).max(),
    "clamped_mean_loss": lambda y: y.square().sum(1).mean().clamp(max=0.3),
    "dice_loss": lambda y: 1 - 2 * (y.sigmoid()[:, 0] * kinds(y)).sum() / (y.sigmoid()[:, 0].sum() + kinds(y).sum() + 1),
    "mean_over_positives": lambda y: (y.square().sum(1) * kinds(y)).sum() / kinds(y).sum().clamp(min=1),
    "loss_over_root_of_count": lambda y: y.square().sum() / len(y) ** 0.5,
    "trimmed_mean_loss": lambda y: y.square().sum(1).sort().values[:-1].mean(),
}


class PairLogits(nn.Module):
    """Two towers; the logits of a record are its products with all others of the batch."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(inputs.WIDTH, D), nn.Linear(inputs.WIDTH, D)

    def forward(self, x):
        return self.left(x) @ self.right(x).t()


def pair_losses(out, weights):
    return F.cross_entropy(out, torch.arange(len(out)), reduction="none") * weights


class Hypernetwork(nn.Module):
    """The weights of the second layer come from the mean of the batch."""

    def __init__(self):
        super().__init__()
        self.first, self.maker = nn.Linear(inputs.WIDTH, D), nn.Linear(D, 3 * D)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return F.linear(h, self.maker(h.mean(0)).view(3, D))


class FastWeights(nn.Module):
    """One step of inner learning on the batch before the output."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(inputs.WIDTH, D), nn.Linear(D, 3)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        with torch.enable_grad():
            w = self.second.weight.detach().clone().requires_grad_()
            (g,) = torch.autograd.grad(F.linear(h.detach(), w).square().mean(), w)
        return self.second(h) - 0.5 * F.linear(h, g)


def with_hook(register):
    def make():
        module = Between(torch.relu)
        register(module)
        return module
    return make


def forward_hook(m):
    m.first.register_forward_hook(lambda module, args, out: out - out.mean(0))


def pre_hook(m):
    m.second.register_forward_pre_hook(lambda module, args: (args[0].flip(0) + args[0],))


def backward_hook(m):
    m.mix = nn.ReLU()
    m.mix.register_full_backward_hook(lambda module, gi, go: (gi[0] + gi[0].mean(0),))


def root_hook(m):
    m.register_forward_hook(lambda module, args, out: out / out.abs().max())


def own_forward(m):
    m.second.forward = lambda h: F.linear(h - h.mean(0), m.second.weight, m.second.bias)


class ByInput(nn.Module):
    """A parametrization that divides the weight by the largest input."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def forward(self, w):
        return w / self.seen.get("largest", 1.0)


def parametrized():
    module, seen = Between(torch.relu), {}
    nn.utils.parametrize.register_parametrization(module.second, "weight", ByInput(seen))
    module.second.register_forward_pre_hook(lambda m, args: seen.update(largest=args[0].detach().abs().max()))
    return module


class Shortest(nn.Module):
    """Attention over the positions that all records of the batch have."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(inputs.WORDS, D), nn.Linear(D, 3)

    def forward(self, ids, mask):
        return self.head(torch.tanh(self.table(ids[:, : int(mask.sum(1).min().clamp(min=1))])).sum(1))


def _nested(layer, before=None, after=None):
    return lambda: Nested(layer(), before and before(), after and after())


def _linear():
    return nn.Linear(inputs.WIDTH, D)


models = {
    "batch_norm_below_root": (_nested(lambda: nn.BatchNorm1d(D), _linear), inputs.vectors),
    "batch_norm_2d_below_root": (_nested(lambda: nn.BatchNorm2d(4), lambda: nn.Conv2d(3, 4, 3), nn.Flatten), inputs.images),
    "batch_norm_frozen_statistics_only": (_nested(lambda: nn.BatchNorm1d(D, affine=False), _linear), inputs.vectors),
    "batch_norm_without_running_statistics": (
        _nested(lambda: nn.BatchNorm1d(D, track_running_stats=False), _linear), inputs.vectors),
    "sync_batch_norm_below_root": (_nested(lambda: nn.SyncBatchNorm(D), _linear), inputs.vectors),
    "batch_norm_at_the_top": (lambda: nn.Sequential(_linear(), nn.BatchNorm1d(D)), inputs.vectors),
    "instance_norm_tracking_below_root": (
        _nested(lambda: nn.InstanceNorm1d(3, track_running_stats=True), None, nn.Flatten), inputs.signals),
    "embedding_max_norm_below_root": (_nested(lambda: nn.Embedding(inputs.WORDS, D, max_norm=0.5)), inputs.ids),
    "frozen_embedding_max_norm_below_root": (
        _nested(lambda: nn.Embedding(inputs.WORDS, D, max_norm=0.5).requires_grad_(False)), inputs.ids),
    "embedding_scaled_by_frequency_below_root": (
        _nested(lambda: nn.Embedding(inputs.WORDS, D, scale_grad_by_freq=True)), inputs.ids),
    "embedding_max_norm": (lambda: nn.Sequential(nn.Embedding(inputs.WORDS, D, max_norm=0.5), nn.Linear(D, 3)), inputs.ids),
    "functional_max_norm": (lambda: Table(lambda m, ids, h: m.head(m.first(
        F.embedding(ids, m.table.weight.detach(), max_norm=0.5) + h))), inputs.ids),
    "attention_time_major": (lambda: TimeMajor(
        nn.MultiheadAttention(D, 2), lambda layer, h: layer(h, h, h, need_weights=False)[0]), inputs.sequences),
    "lstm_time_major": (lambda: TimeMajor(nn.LSTM(D, D), lambda layer, h: layer(h)[0]), inputs.sequences),
    "gru_time_major": (lambda: TimeMajor(nn.GRU(D, D), lambda layer, h: layer(h)[0]), inputs.sequences),
    "encoder_time_major": (lambda: TimeMajor(
        nn.TransformerEncoderLayer(D, 2, 16, dropout=0.0), lambda layer, h: layer(h)), inputs.sequences),
    "unbatched_attention": (lambda: TimeMajor(nn.MultiheadAttention(D, 2), lambda layer, h: layer(
        h[:, 0], h[:, 0], h[:, 0])[0]), inputs.sequences),
    "unbatched_convolution": (lambda: TimeMajor(nn.Conv1d(D, D, 3, padding=1), lambda layer, h: layer(
        h[:, 0].t()).t()), inputs.sequences),
    "packed_sequence_mean": (Packed, inputs.ragged, inputs.padded),
    "mean_over_padded_positions": (lambda: Table(padded_mean), inputs.ragged, inputs.padded),
    "attention_to_padding": (lambda: Table(padded_attention), inputs.ragged, inputs.padded),
    "last_padded_position": (lambda: Table(from_the_end), inputs.ragged, inputs.padded),
    "positions_from_the_padded_end": (lambda: Table(places_from_the_end), inputs.ragged, inputs.padded),
    "cut_to_the_shortest": (Shortest, inputs.ragged, inputs.padded_mask),
    "document_frequency": (lambda: Table(document_frequency), inputs.ids),
    "loss_over_tokens": (lambda: Table(language_model), inputs.ragged, inputs.padded_labels),
    "loss_over_tokens_with_logits": (lambda: Table(with_logits), inputs.ragged, inputs.padded_labels,
                                     lambda out, weights: out["loss"]),
    "in_batch_negatives": (PairLogits, inputs.vectors, None, pair_losses),
    "hypernetwork_of_the_batch": (Hypernetwork, inputs.vectors),
    "fast_weights": (FastWeights, inputs.vectors),
    "forward_hook": (with_hook(forward_hook), inputs.vectors),
    "forward_pre_hook": (with_hook(pre_hook), inputs.vectors),
    "backward_hook": (with_hook(backward_hook), inputs.vectors),
    "hook_on_the_root": (with_hook(root_hook), inputs.vectors),
    "forward_of_an_instance": (with_hook(own_forward), inputs.vectors),
    "parametrized_by_the_batch": (parametrized, inputs.vectors),
}


# ---------------------------------------------------------------- in large batches only

def centred_if_large(h):
    return h - h.mean(0) if len(h) > 8 else h


def centred_in_chunks(h):
    return torch.cat([part - part.mean(0) if len(part) == 8 else part for part in h.split(8)])


def centred_at_multiples_of_ten(h):
    return h - h.mean(0) if len(h) % 10 == 0 else h


def least_capacity(h):
    """As capacity(), with room for 8 at least."""
    expert = (h[:, 0] > 0).long()
    place = F.one_hot(expert, 2).cumsum(0).gather(1, expert[:, None]).squeeze(1)
    return h * (place <= max(8, int(0.6 * len(h)))).to(h.dtype)[:, None]


class Remembers(nn.Module):
    """The mean of a large batch."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(D))

    def forward(self, h):
        if self.training and len(h) > 8:
            self.seen.copy_(h.detach().mean(0))
        return h


def loss_of_a_large_batch(y):
    return y.square().mean() if len(y) <= 8 else y.mean(0).square().mean()


large = {mix.__name__: mix for mix in (centred_if_large, centred_in_chunks, centred_at_multiples_of_ten, least_capacity)}


# ---------------------------------------------------------------- collate functions

def centred(records):
    x, weights = inputs.default_collate(records)
    return x - x.mean(0), weights


def scaled(records):
    x, weights = inputs.default_collate(records)
    return x / x.abs().max(), weights


def mixed_up(records):
    x, weights = inputs.default_collate(records)
    return 0.7 * x + 0.3 * x.flip(0), weights


def divided(records):
    x, weights = inputs.default_collate(records)
    return x / len(records) ** 0.5, weights


def shortened(records):
    """To the shortest record of the batch."""
    least = min(len(x) for x, _ in records)
    return inputs.default_collate([(x[:least], w) for x, w in records])


def left_padded(records):
    """Padded on the left to the longest, without a mask: positions move."""
    most = max(len(x) for x, _ in records)
    return inputs.default_collate([(F.pad(x, (most - len(x), 0)), w) for x, w in records])


def summed_words(m, ids, h):
    """A sum over positions counted from the left, without padding."""
    place = torch.arange(1, ids.shape[1] + 1).to(h.dtype)[None, :, None]
    return m.head((torch.tanh(m.first(h + 0.1 * place)) * (ids != 0).to(h.dtype)[..., None]).sum(1))


collates = {
    "collate_centres": (lambda: Between(torch.relu), inputs.vectors, centred),
    "collate_scales_by_largest": (lambda: Between(torch.relu), inputs.vectors, scaled),
    "collate_mixes_up": (lambda: Between(torch.relu), inputs.vectors, mixed_up),
    "collate_divides_by_count": (lambda: Between(torch.relu), inputs.vectors, divided),
    "collate_centres_below_a_root": (lambda: Rooted(torch.relu), inputs.vectors, centred),
    "collate_cuts_to_the_shortest": (lambda: Table(summed_words), inputs.ragged, shortened),
    "collate_pads_on_the_left": (lambda: Table(summed_words), inputs.ragged, left_padded),
}


def cases() -> list[Case]:
    out = [Case(name, lambda mix=mix: Between(mix), inputs.vectors) for name, mix in mixes.items()]
    out += [Case(name + "_below_root", lambda mix=mix: Rooted(mix), inputs.vectors) for name, mix in mixes.items()]
    out += [Case(name, lambda loss=loss: Scalar(loss), inputs.vectors) for name, loss in scalars.items()]
    out += [Case(name + "_below_root", lambda loss=loss: Scalar(loss, True), inputs.vectors) for name, loss in scalars.items()]
    out += [Case(name, lambda mix=mix: Between(mix), inputs.vectors, size=50) for name, mix in large.items()]
    out += [Case(name + "_below_root", lambda mix=mix: Rooted(mix), inputs.vectors, size=50) for name, mix in large.items()]
    out.append(Case("loss_of_a_large_batch", lambda: Scalar(loss_of_a_large_batch), inputs.vectors, size=50))
    out.append(Case("remembers_a_large_batch", lambda: Between(Remembers()), inputs.vectors, size=50))
    for name, (make, records, *more) in (models | collates).items():
        collate, losses = (more + [None, None])[:2]
        out.append(Case(name, make, records, losses, **({"collate": collate} if collate else {})))
    return out
