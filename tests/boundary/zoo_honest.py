"""Models in which no record changes what another contributes, a few lines each. All of them must be accepted, and their clipped
sums must be those of autograd, record by record.
"""

import inputs
import torch
import zoo_apart
from inputs import LENGTH, WIDTH, WORDS
from oracle import Case
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from zoo_couplings import Between, InTraining, Rooted, drop_path

D = 8


class Function(nn.Module):
    """Modules by name, and a function of the module and its inputs."""

    def __init__(self, forward, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.function = forward

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def sequential(*parts):
    return nn.Sequential(*parts)


def head(layer, width=D, pick=lambda y: y):
    return Function(lambda m, x: m.head(torch.tanh(pick(m.layer(x)))), layer=layer, head=nn.Linear(width, 3))


def first(y):
    return y[0]


def converged():
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, D))
    for _ in range(400):
        layer.weight  # noqa: B018
    return layer


# ---------------------------------------------------------------- layers, each below a head

def layers():
    linear = lambda: nn.Linear(WIDTH, D)  # noqa: E731
    table = lambda **o: nn.Embedding(WORDS, D, **o)  # noqa: E731
    return {
        "linear": (linear, inputs.vectors),
        "linear_of_sequences": (linear, inputs.sequences),
        "linear_without_bias": (lambda: nn.Linear(WIDTH, D, bias=False), inputs.vectors),
        "convolution_1d": (lambda: sequential(nn.Conv1d(3, 4, 3, stride=2), nn.Flatten(), nn.Linear(16, D)), inputs.signals),
        "convolution_2d": (lambda: sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                              nn.Linear(4, D)), inputs.images),
        "convolution_2d_grouped": (lambda: sequential(nn.Conv2d(3, 6, 2, groups=3, dilation=2), nn.Flatten(),
                                                      nn.Linear(96, D)), inputs.images),
        "convolution_2d_reflect": (lambda: sequential(nn.Conv2d(3, 2, 3, padding=1, padding_mode="reflect"), nn.Flatten(),
                                                      nn.Linear(72, D)), inputs.images),
        "convolution_3d": (lambda: sequential(nn.Conv3d(2, 2, 2), nn.Flatten(), nn.Linear(54, D)), inputs.volumes),
        "convolution_transposed_1d": (lambda: sequential(nn.ConvTranspose1d(3, 2, 3), nn.Flatten(), nn.Linear(22, D)),
                                      inputs.signals),
        "convolution_transposed_2d": (lambda: sequential(nn.ConvTranspose2d(3, 2, 2, stride=2), nn.Flatten(),
                                                         nn.Linear(288, D)), inputs.images),
        "group_norm": (lambda: sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, D)),
                       inputs.images),
        "instance_norm_after_a_bias": (lambda: sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.ReLU(),
                                                          nn.Flatten(), nn.Linear(64, D)), inputs.images),
        "instance_norm_plain_after_a_bias": (lambda: sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4), nn.ReLU(),
                                                                nn.Flatten(), nn.Linear(64, D)), inputs.images),
        "layer_norm": (lambda: sequential(linear(), nn.LayerNorm(D)), inputs.sequences),
        "layer_norm_two_dimensions": (lambda: sequential(nn.LayerNorm((LENGTH, WIDTH)), linear()), inputs.sequences),
        "rms_norm": (lambda: sequential(linear(), nn.RMSNorm(D)), inputs.sequences),
        "local_response_norm": (lambda: sequential(nn.Conv2d(3, 4, 3), nn.LocalResponseNorm(2), nn.Flatten(),
                                                   nn.Linear(64, D)), inputs.images),
        "embedding": (table, inputs.ids),
        "embedding_padding": (lambda: table(padding_idx=3), inputs.ids),
        "embedding_bag": (lambda: nn.EmbeddingBag(WORDS, D, mode="mean"), inputs.ids),
        "prelu": (lambda: sequential(linear(), nn.PReLU(), nn.Linear(D, D)), inputs.vectors),
        "bilinear": (lambda: Function(lambda m, x: m.pair(x[:, :3], x[:, 3:]), pair=nn.Bilinear(3, 3, D)), inputs.vectors),
        "lstm": (lambda: nn.LSTM(WIDTH, D, batch_first=True), inputs.sequences, first),
        "lstm_two_layers_projected": (lambda: nn.LSTM(WIDTH, 9, 2, batch_first=True, proj_size=D), inputs.sequences, first),
        "gru_bidirectional": (lambda: nn.GRU(WIDTH, D // 2, batch_first=True, bidirectional=True), inputs.sequences, first),
        "rnn_last_state": (lambda: nn.RNN(WIDTH, D, batch_first=True), inputs.sequences, lambda y: y[0][:, -1]),
        "lstm_time_first": (lambda: Function(lambda m, x: m.cell(x.transpose(0, 1))[0].transpose(0, 1),
                                             cell=nn.LSTM(WIDTH, D)), inputs.sequences),
        "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(linear()), inputs.vectors),
        "spectral_norm": (converged, inputs.vectors),
        "orthogonal": (lambda: nn.utils.parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH + 2)), inputs.vectors),
        "dropout": (lambda: sequential(linear(), nn.Dropout(0.3)), inputs.vectors, None, True),
        "dropout_2d": (lambda: sequential(nn.Conv2d(3, 4, 3), nn.Dropout2d(0.3), nn.Flatten(), nn.Linear(64, D)),
                       inputs.images, None, True),
        "alpha_dropout": (lambda: sequential(linear(), nn.SELU(), nn.AlphaDropout(0.2)), inputs.vectors, None, True),
    }


# ---------------------------------------------------------------- attention

def attention(call=lambda layer, h: layer(h, h, h, need_weights=False)[0], **options):
    return lambda: Function(lambda m, x: m.head(call(m.attention, m.first(x))), first=nn.Linear(WIDTH, D),
                            attention=nn.MultiheadAttention(D, 2, **{"batch_first": True} | options), head=nn.Linear(D, 3))


def time_first(layer, h):
    h = h.transpose(0, 1)
    return layer(h, h, h, need_weights=False)[0].transpose(0, 1)


def causal(layer, h):
    mask = nn.Transformer.generate_square_subsequent_mask(h.shape[1], dtype=h.dtype)
    return layer(h, h, h, attn_mask=mask, is_causal=True, need_weights=False)[0]


def crossed(layer, h):
    return layer(h, h[:, :2], h[:, :2])[0]


attentions = {
    "attention": attention(),
    "attention_with_weights": attention(lambda layer, h: layer(h, h, h)[0]),
    "attention_without_bias": attention(bias=False),
    "attention_causal": attention(causal),
    "attention_time_first": attention(time_first, batch_first=False),
    "attention_crossed": attention(crossed),
    "attention_added_bias": attention(add_bias_kv=True),
    "attention_added_zero": attention(add_zero_attn=True),
    "encoder_layer": lambda: sequential(nn.Linear(WIDTH, D), nn.TransformerEncoderLayer(D, 2, 12, 0.0, batch_first=True)),
    "encoder_layer_norm_first": lambda: sequential(nn.Linear(WIDTH, D), nn.TransformerEncoderLayer(
        D, 2, 12, 0.0, batch_first=True, norm_first=True, activation="gelu")),
    "encoder": lambda: sequential(nn.Linear(WIDTH, D), nn.TransformerEncoder(
        nn.TransformerEncoderLayer(D, 2, 12, 0.0, batch_first=True), 2, enable_nested_tensor=False)),
    "decoder_layer": lambda: Function(lambda m, x: m.layer(m.first(x), m.second(x[:, :3])), first=nn.Linear(WIDTH, D),
                                      second=nn.Linear(WIDTH, D),
                                      layer=nn.TransformerDecoderLayer(D, 2, 12, 0.0, batch_first=True)),
    "transformer": lambda: Function(lambda m, x: m.layer(m.first(x), m.first(x[:, :2])), first=nn.Linear(WIDTH, D),
                                    layer=nn.Transformer(D, 2, 1, 1, 12, 0.0, batch_first=True)),
}


def heads(x, count=2):
    return x.reshape(len(x), -1, count, x.shape[-1] // count).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


def by_hand(m, x):
    """A key with a bias has gradient exactly 0 there."""
    q, k, v = (heads(layer(x)) for layer in (m.q, m.k, m.v))
    return m.o(joined(F.scaled_dot_product_attention(q, k, v)))


def grouped_query(m, x):
    q, k, v = heads(m.q(x), 4), heads(m.k(x)), heads(m.v(x))
    k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    return m.o(joined(torch.softmax(q @ k.transpose(-2, -1) / 4, -1) @ v))


def rotary(m, x):
    q, k, v = m.q(x), m.k(x), m.v(x)
    angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * torch.arange(1, D // 2 + 1, dtype=x.dtype)
    turn = lambda y: torch.cat([y[..., :D // 2] * angle.cos() - y[..., D // 2:] * angle.sin(),  # noqa: E731
                                y[..., D // 2:] * angle.cos() + y[..., :D // 2] * angle.sin()], -1)
    return m.o(F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True))


def _qkvo(forward, key=D):
    return lambda: Function(forward, q=nn.Linear(WIDTH, D), k=nn.Linear(WIDTH, key), v=nn.Linear(WIDTH, key), o=nn.Linear(D, 3))


attentions |= {"attention_by_hand": _qkvo(by_hand), "attention_grouped_query": _qkvo(grouped_query, D // 2),
               "attention_rotary": _qkvo(rotary)}


# ---------------------------------------------------------------- structures

class ClassToken(nn.Module):
    """As ViT: patches, a class token, learned positions, an encoder."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, D, 3, stride=3)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, D)), nn.Parameter(torch.randn(1, 5, D))
        self.encoder = nn.TransformerEncoderLayer(D, 2, 12, 0.0, batch_first=True)
        self.head = nn.Linear(D, 3)

    def forward(self, x):
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(len(x), -1, -1), h], 1) + self.places
        return self.head(self.encoder(h)[:, 0])


class Language(nn.Module):
    """A small causal model with learned positions and, if asked, tied weights."""

    def __init__(self, tied=False, saved=False):
        super().__init__()
        self.table, self.places = nn.Embedding(WORDS, D), nn.Embedding(LENGTH, D)
        self.layer, self.norm = nn.TransformerEncoderLayer(D, 2, 12, 0.0, batch_first=True), nn.LayerNorm(D)
        self.head, self.saved = nn.Linear(D, WORDS, bias=False), saved
        if tied:
            self.head.weight = self.table.weight

    def forward(self, ids):
        h = self.table(ids) + self.places(torch.arange(ids.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], dtype=h.dtype)
        run = lambda h: self.layer(h, src_mask=mask)  # noqa: E731
        return self.head(self.norm(checkpoint(run, h, use_reentrant=False) if self.saved else run(h)))


class Masked(nn.Module):
    """Padding is masked in attention and in the mean."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(WORDS, D, padding_idx=0), nn.Linear(D, 3)
        self.attention = nn.MultiheadAttention(D, 2, batch_first=True)

    def forward(self, ids, mask):
        h = self.table(ids)
        h = h + self.attention(h, h, h, key_padding_mask=~mask, need_weights=False)[0]
        kept = mask[..., None].to(h.dtype)
        return self.head(torch.tanh((h * kept).sum(1) / kept.sum(1).clamp(min=1)))


class LastToken(nn.Module):
    """The last token that is not padding, of a recurrent layer."""

    def __init__(self):
        super().__init__()
        self.table, self.cell, self.head = nn.Embedding(WORDS, D), nn.GRU(D, D, batch_first=True), nn.Linear(D, 3)

    def forward(self, ids, mask):
        h = self.cell(self.table(ids))[0]
        return self.head(h[torch.arange(len(ids)), mask.sum(1) - 1])


class Adapter(nn.Module):
    """As LoRA: a frozen layer and two small matrices."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + 2.0 * self.up(self.down(x))


class Shared(nn.Module):
    def __init__(self, layer, times=3):
        super().__init__()
        self.layer, self.times = layer, times
        self.first, self.head = nn.Linear(WIDTH, D), nn.Linear(D, 3)

    def forward(self, x):
        h = self.first(x)
        for _ in range(self.times):
            h = h + torch.tanh(self.layer(h))
        return self.head(h)


class Recurrent(nn.Module):
    """A cell used at every position."""

    def __init__(self, cell):
        super().__init__()
        self.cell, self.head = cell, nn.Linear(D, 3)

    def forward(self, x):
        h = torch.zeros(len(x), D, dtype=x.dtype)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.head(h)


class StateSpace(nn.Module):
    """A selective scan with parameters of the root."""

    def __init__(self):
        super().__init__()
        self.rates, self.skip = nn.Parameter(torch.randn(D)), nn.Parameter(torch.ones(D))
        self.inward, self.gate, self.outward = nn.Linear(WIDTH, D), nn.Linear(WIDTH, D), nn.Linear(D, 3)

    def forward(self, x):
        u, gate = self.inward(x), self.gate(x)
        state, out = torch.zeros_like(u[:, 0]), []
        for t in range(x.shape[1]):
            state = torch.exp(-F.softplus(self.rates)) * state + u[:, t]
            out.append((state + self.skip * u[:, t]) * F.silu(gate[:, t]))
        return self.outward(torch.stack(out, 1))


class Experts(nn.Module):
    """Every record is weighted over all experts: no one waits for room."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(WIDTH, 3), nn.ModuleList(nn.Linear(WIDTH, D) for _ in range(3))
        self.head = nn.Linear(D, 3)

    def forward(self, x):
        weight = self.router(x).softmax(-1)
        return self.head(sum(weight[..., k:k + 1] * torch.tanh(e(x)) for k, e in enumerate(self.experts)))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(WIDTH, D), nn.Linear(LENGTH, D), nn.Linear(D, 3)

    def forward(self, left, right):
        h = torch.tanh(self.left(left)) * torch.tanh(self.right(right))
        return {"first": self.head(h), "second": [h.sum(1)]}


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.randn(WIDTH)) for _ in range(2)])
        self.named, self.head = nn.ParameterDict({"shift": nn.Parameter(torch.randn(WIDTH))}), nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.head(torch.tanh(x * self.scales[0] + self.named["shift"]) * self.scales[1])


class Counter(nn.Module):
    """Counts its calls, which says nothing of records."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(WIDTH, D), nn.Linear(D, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        return self.head(torch.tanh(self.first(x)))


class Squeeze(nn.Module):
    """Squeeze and excitation, residual, depthwise: as mobile networks."""

    def __init__(self):
        super().__init__()
        self.expand, self.depth = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.down, self.up = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.norm, self.project, self.head = nn.GroupNorm(4, 8), nn.Conv2d(8, 3, 1), nn.Linear(3, 3)

    def forward(self, x):
        h = F.silu(self.norm(self.depth(F.silu(self.expand(x)))))
        h = h * torch.sigmoid(self.up(F.relu(self.down(h.mean((2, 3), keepdim=True)))))
        return self.head((x + self.project(h)).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv2d(3, 4, 2, stride=2), nn.Conv2d(4, 4, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(4, 3, 2, stride=2), nn.Conv2d(6, 2, 1)

    def forward(self, x):
        h = F.relu(self.down(x))
        return self.out(torch.cat([x, self.up(F.relu(self.middle(h)))], 1))


def own_losses(out, weights):
    return out * weights


class OwnLosses(nn.Module):
    """Returns one loss a record."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(WORDS, D), nn.Linear(D, WORDS)

    def forward(self, ids):
        logits = self.head(torch.tanh(self.table(ids)))
        losses = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        return losses.view(len(ids), -1).mean(1)


def stochastic_depth(m, x):
    h = m.first(x)
    return m.head(h + drop_path(torch.tanh(m.second(h))))


def _three(forward, **more):
    return lambda: Function(forward, first=nn.Linear(WIDTH, D), second=nn.Linear(D, D), head=nn.Linear(D, 3), **more)


def two_inputs(n):
    return [((x, y), w) for (x, w), (y, _) in zip(inputs.vectors(n), inputs.vectors(n, LENGTH))]


def _batch_norm_in_eval():
    module = sequential(nn.Linear(WIDTH, D), nn.BatchNorm1d(D), nn.Linear(D, 3))
    module[1].requires_grad_(False).eval()
    module[1].train = lambda mode=True: module[1]
    return module


def tied_below_a_root():
    """A table that a module with a parameter of its own uses, and the head outside of it too."""
    table = nn.Embedding(WORDS, D)

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.gain = table, nn.Parameter(torch.randn(D))

        def forward(self, ids):
            return torch.tanh(self.table(ids)) * self.gain

    module = Function(lambda m, ids: m.head(m.first(ids)), first=Scaled(), head=nn.Linear(D, WORDS, bias=False))
    module.head.weight = table.weight
    return module


structures = {
    "bag_of_padded_words": (lambda: Function(lambda m, ids: m.head(torch.tanh(m.table(ids).sum(1))), head=nn.Linear(D, 3),
                                             table=nn.Embedding(WORDS, D, padding_idx=0)), inputs.ragged, inputs.padded),
    "tied_below_a_root": (tied_below_a_root, inputs.ids),
    "class_token": (ClassToken, inputs.images),
    "language": (Language, inputs.ids),
    "language_tied": (lambda: Language(tied=True), inputs.ids),
    "language_checkpointed": (lambda: Language(saved=True), inputs.ids),
    "masked_padding": (Masked, inputs.ragged, inputs.padded_mask),
    "last_token": (LastToken, inputs.ragged, inputs.padded_mask),
    "adapters": (lambda: sequential(Adapter(nn.Linear(WIDTH, D)), nn.ReLU(), Adapter(nn.Linear(D, 3))), inputs.sequences),
    "adapters_only_bias": (lambda: sequential(nn.Linear(WIDTH, D), nn.GELU(), nn.Linear(D, 3).requires_grad_(False)),
                           inputs.vectors),
    "shared_layer": (lambda: Shared(nn.Linear(D, D)), inputs.vectors),
    "shared_layer_of_sequences": (lambda: Shared(nn.Linear(D, D)), inputs.sequences),
    "shared_block": (lambda: Shared(sequential(nn.LayerNorm(D), nn.Linear(D, D), nn.GELU())), inputs.sequences),
    "shared_root_parameter": (lambda: Shared(Rooted(torch.relu), 0), inputs.vectors),
    "lstm_cell": (lambda: Recurrent(nn.GRUCell(WIDTH, D)), inputs.sequences),
    "rnn_cell": (lambda: Recurrent(nn.RNNCell(WIDTH, D)), inputs.sequences),
    "state_space": (StateSpace, inputs.sequences),
    "experts_without_room": (Experts, inputs.vectors),
    "experts_of_sequences": (Experts, inputs.sequences),
    "two_inputs": (TwoInputs, two_inputs),
    "lists_of_parameters": (Listed, inputs.vectors),
    "counter_of_calls": (Counter, inputs.vectors),
    "squeeze_and_excitation": (Squeeze, inputs.images),
    "unet": (UNet, inputs.images),
    "rooted": (lambda: Rooted(torch.relu), inputs.vectors),
    "rooted_sequences": (lambda: Rooted(torch.relu), inputs.sequences),
    "normalised_by_its_own_norm": (lambda: Between(lambda h: F.normalize(h, dim=1)), inputs.vectors),
    "divided_by_a_public_number": (lambda: Between(lambda h: h / 32**0.5), inputs.vectors),
    "branch_of_each_record": (lambda: Between(lambda h: torch.where(h.sum(1, keepdim=True) > 0, h, -h)), inputs.vectors),
    "flattened_rows": (_three(lambda m, x: m.head(torch.tanh(m.first(x.flatten(0, 1)))).unflatten(0, x.shape[:2])),
                       inputs.sequences),
    "vision_of_positions_last": (_three(lambda m, x: m.head(torch.tanh(m.first(x)).transpose(1, 2).mean(2))),
                                 inputs.sequences),
    "losses_of_its_own": (OwnLosses, inputs.ids, None, own_losses),
    "checkpointed": (_three(lambda m, x: m.head(checkpoint(lambda h: torch.tanh(m.second(h)), m.first(x),
                                                           use_reentrant=False))), inputs.sequences),
    "in_place_activation": (lambda: sequential(nn.Linear(WIDTH, D), nn.ReLU(inplace=True), nn.Linear(D, 3)), inputs.vectors),
    "unused_parameters": (_three(lambda m, x: m.head(torch.tanh(m.first(x)))), inputs.vectors),
    "batch_norm_in_eval": (_batch_norm_in_eval, inputs.vectors),
    "hook_of_each_record": (lambda: hooked(), inputs.vectors),
    # Random numbers: one draw a record, independent of records.
    "stochastic_depth": (_three(stochastic_depth), inputs.vectors, None, None, True),
    "stochastic_depth_in_training": (lambda: Between(InTraining(lambda h: h + drop_path(h.sin()))), inputs.vectors, None, None,
                                     True),
    "functional_dropout_in_training_below_root": (lambda: Rooted(InTraining(lambda h: F.dropout(h, 0.3))), inputs.vectors,
                                                  None, None, True),
    "functional_dropout": (_three(lambda m, x: m.head(F.dropout(torch.tanh(m.first(x)), 0.3, m.training))), inputs.vectors,
                           None, None, True),
    "functional_dropout_below_root": (lambda: Rooted(lambda h: F.dropout(h, 0.3)), inputs.vectors, None, None, True),
    "stochastic_depth_below_root": (lambda: Rooted(lambda h: h + drop_path(h.sin())), inputs.vectors, None, None, True),
    "noise_below_root": (lambda: Rooted(lambda h: h + 0.1 * torch.randn_like(h)), inputs.sequences, None, None, True),
    "noise_on_inputs": (_three(lambda m, x: m.head(torch.tanh(m.first(x + 0.1 * torch.randn_like(x))))), inputs.vectors,
                        None, None, True),
    "variational": (_three(lambda m, x: m.head(m.first(x) + torch.randn(len(x), D).to(x.dtype) * m.second(m.first(x)).exp())),
                    inputs.vectors, None, None, True),
    "encoder_with_dropout": (lambda: sequential(nn.Linear(WIDTH, D),
                                                nn.TransformerEncoderLayer(D, 2, 12, 0.1, batch_first=True)),
                             inputs.sequences, None, None, True),
    "one_coin_for_the_batch": (lambda: Between(lambda h: h if torch.rand(()) < 0.5 else h.sin()), inputs.vectors, None, None,
                               True),
}


def hooked():
    module = Between(torch.relu)
    module.first.register_forward_hook(lambda m, args, out: out / (1 + out.norm(dim=1, keepdim=True)))
    return module


def cases() -> list[Case]:
    out = []
    for name, (make, records, *more) in layers().items():
        pick, random = (more + [None, False])[:2]
        out.append(Case(name, lambda make=make, pick=pick: head(make(), pick=pick or (lambda y: y)), records, random=random))
    out += [Case(name, make, inputs.sequences) for name, make in attentions.items()]
    for name, (make, records, *more) in structures.items():
        collate, losses, random = (more + [None, None, False][len(more):])[:3]
        out.append(Case(name, make, records, losses, random=random, alike=name != "encoder_with_dropout",
                        **({"collate": collate} if collate else {})))
    options = {"in_pieces": {"max_physical_batch_size": 3}, "accumulated": {"gradient_accumulation_steps": 2}}
    out += [Case(f"{case.name}_{name}", case.make, case.records, options=option) for name, option in options.items()
            for case in out if case.name in ("language_tied", "class_token")]
    return out + zoo_apart.cases()
