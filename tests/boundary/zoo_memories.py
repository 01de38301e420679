"""Models that remember records, a few lines each: what a checkpoint or a later step would show of them is not noised. All of
them must be rejected.
"""

import collections
import contextvars
import functools
import os
import tempfile
import types

import inputs
import numpy as np
import torch
from oracle import Case
from torch import nn
from torch.nn import functional as F
from zoo_couplings import Between, D, Rooted, Table, drop_path, standardized

SEEN = {"mean": 0.0}
CURRENT = contextvars.ContextVar("mean", default=0.0)


def average(before, h):
    return 0.9 * before + 0.1 * h.detach().mean(0)


def with_memory(make):
    """make: a module → a function (h) → h that may keep what it likes."""
    def build(kind=Between):
        module = kind(torch.relu)
        module.mix = make(module)
        return module
    return build


def buffer(m, persistent=True):
    m.register_buffer("mean", torch.zeros(D), persistent=persistent)

    def mix(h):
        m.mean = average(m.mean, h)
        return h - m.mean
    return mix


def buffer_in_place(m):
    m.register_buffer("mean", torch.zeros(D))

    def mix(h):
        m.mean.copy_(average(m.mean, h))
        return h - m.mean.clone()
    return mix


def buffer_unused(m):
    """Nothing reads it, but a checkpoint has it."""
    m.register_buffer("mean", torch.zeros(D))

    def mix(h):
        m.mean.copy_(average(m.mean, h))
        return h
    return mix


def buffer_and_noise(m):
    m.register_buffer("mean", torch.zeros(D))

    def mix(h):
        m.mean.copy_(average(m.mean, h))
        return F.dropout(h - m.mean.clone(), 0.1)
    return mix


def running_batch_norm(m):
    m.register_buffer("mean", torch.zeros(D))
    m.register_buffer("variance", torch.ones(D))
    return lambda h: F.batch_norm(h, m.mean, m.variance, training=m.training)


def frozen_parameter(m):
    m.mean = nn.Parameter(torch.zeros(D), requires_grad=False)

    def mix(h):
        m.mean.data.copy_(average(m.mean, h))
        return h - m.mean.clone()
    return mix


def frozen_parameter_unused(m):
    m.mean = nn.Parameter(torch.zeros(D), requires_grad=False)

    def mix(h):
        m.mean.data.copy_(average(m.mean, h))
        return h
    return mix


def trained_parameter(m):
    """Its weights shrink with what passes."""
    def mix(h):
        m.second.weight.data.mul_(1 - 0.01 * float(h.detach().abs().mean()))
        return h
    return mix


def attribute(m):
    m.mean = torch.zeros(D)

    def mix(h):
        m.mean = average(m.mean, h)
        return h - m.mean
    return mix


def number(m):
    m.level = 0.0

    def mix(h):
        m.level = 0.9 * m.level + float(h.detach().mean())
        return h - m.level
    return mix


def text(m):
    m.note = ""

    def mix(h):
        out = h * (1 + len(m.note) % 3)
        m.note += "x" * int(10 * h.detach().abs().max())
        return out
    return mix


def listed(m):
    m.past = []

    def mix(h):
        out = h - (m.past[-1] if m.past else 0)
        m.past.append(h.detach().mean(0))
        return out
    return mix


def dictionary(m):
    m.past = {}

    def mix(h):
        out = h - m.past.get("mean", 0)
        m.past["mean"] = h.detach().mean(0)
        return out
    return mix


def namespace(m):
    m.settings = types.SimpleNamespace(inner={"mean": [torch.zeros(D)]})

    def mix(h):
        before = m.settings.inner["mean"][0]
        m.settings.inner["mean"][0] = average(before, h)
        return h - before
    return mix


def closure(m):
    mean = torch.zeros(D)

    def mix(h):
        nonlocal mean
        before, mean = mean, average(mean, h)
        return h - before
    return mix


def queue(m):
    """As MoCo: the last representations are negatives of the next batch."""
    past = collections.deque(maxlen=4)

    def mix(h):
        out = h + 0.1 * sum(h @ k[:, None] * k for k in past) if past else h
        past.append(h.detach().mean(0))
        return out
    return mix


def generator(m):
    def means():
        mean = torch.zeros(D)
        while True:
            h = yield mean
            mean = average(mean, h)
    kept = means()
    next(kept)
    return lambda h: h - kept.send(h)


def global_variable(m):
    def mix(h):
        before = SEEN["mean"]
        SEEN["mean"] = average(before, h)
        return h - before
    return mix


def context_variable(m):
    def mix(h):
        before = CURRENT.get()
        CURRENT.set(average(before, h))
        return h - before
    return mix


def class_attribute(m):
    kind = type("Kept", (), {"mean": 0.0})

    def mix(h):
        before, kind.mean = kind.mean, average(kind.mean, h)
        return h - before
    return mix


def default_argument(m):
    def mix(h, kept=[torch.zeros(D)]):  # noqa: B006, B008
        before, kept[0] = kept[0], average(kept[0], h)
        return h - before
    return mix


def partial(m):
    def step(kept, h):
        before, kept["mean"] = kept.get("mean", 0), h.detach().mean(0)
        return h - before
    return functools.partial(step, {})


def array(m):
    m.mean = np.zeros(D)

    def mix(h):
        before = torch.as_tensor(m.mean).to(h.dtype).clone()
        m.mean += 0.1 * h.detach().mean(0).double().numpy()
        return h - before
    return mix


def file(m):
    path = tempfile.NamedTemporaryFile(delete=False).name
    m.path = path
    os.unlink(path)

    def mix(h):
        before = float(np.fromfile(path)[0]) if os.path.exists(path) else 0.0
        np.array([0.9 * before + float(h.detach().mean())]).tofile(path)
        return h - before
    return mix


def random_state(m):
    """Reseeds the global generator from what it saw."""
    def mix(h):
        noise = 0.1 * torch.randn(D).to(h.dtype)
        torch.manual_seed(int(h.detach().abs().sum() * 1e3))
        return h + noise
    return mix


def largest_so_far(m):
    m.largest = torch.ones(())

    def mix(h):
        m.largest = torch.maximum(m.largest, 3 * h.detach().abs().max())
        return h / m.largest
    return mix


def seen_signs(m):
    """A set of the patterns that came, and what is new is scaled."""
    m.patterns = set()

    def mix(h):
        patterns = {tuple(row) for row in (h.detach() > 0).tolist()}
        fresh = len(patterns - m.patterns)
        m.patterns |= patterns
        return h * (1 + fresh)
    return mix


def neighbours(m):
    m.register_buffer("bank", torch.randn(16, D))

    def mix(h):
        near = m.bank[torch.cdist(h.detach(), m.bank).argmin(1)]
        m.bank = torch.cat([m.bank[len(h):], h.detach()])
        return h + 0.3 * near
    return mix


def codebook(m):
    """A vector quantiser whose codes follow the records."""
    m.register_buffer("codes", torch.randn(4, D))

    def mix(h):
        nearest = torch.cdist(h.detach(), m.codes).argmin(1)
        chosen = m.codes[nearest]
        new = m.codes.clone()
        for k in nearest.unique():
            new[k] = average(new[k], h[nearest == k])
        m.codes.copy_(new)
        return h + (chosen - h).detach()
    return mix


def cache(m):
    m.keys = None

    def mix(h):
        keys = h if m.keys is None else torch.cat([m.keys, h])
        m.keys = h.detach()
        return torch.softmax(h @ keys.t(), 1) @ keys
    return mix


def second_call_only(m):
    """Behaves at its first calls."""
    m.calls, m.mean = 0, torch.zeros(D)

    def mix(h):
        m.calls += 1
        m.mean = average(m.mean, h)
        return h - m.mean if m.calls > 1 else h
    return mix


def hook_memory(m):
    kept = {}
    m.first.register_forward_hook(lambda module, args, out: kept.update(mean=out.detach().mean(0)))
    m.second.register_forward_pre_hook(lambda module, args: (args[0] - kept.pop("before", 0),))
    m.register_forward_hook(lambda module, args, out: kept.update(before=kept["mean"]))
    return torch.relu


def gradient_memory(m):
    """Remembers gradients instead of activations."""
    m.register_buffer("seen", torch.zeros(D))

    def mix(h):
        h = h + 0.1 * m.seen.clone()
        if h.requires_grad:
            h.register_hook(lambda g: (m.seen.copy_(0.9 * m.seen + g.detach().mean(0)), None)[1])
        return h
    return mix


def noisy_attribute(m):
    m.mean = torch.zeros(D)

    def mix(h):
        m.mean = average(m.mean, h)
        return h - m.mean + drop_path(0.1 * h)
    return mix


def noisy_statistics_in_attribute(m):
    m.mean = torch.zeros(D)

    def mix(h):
        m.mean = average(m.mean, h)
        return F.dropout(standardized(h) - m.mean, 0.1)
    return mix


class Kept(nn.Module):
    """What most people write: a module whose forward changes itself."""

    def __init__(self, m):
        super().__init__()
        self.start()

    def start(self):
        self.mean = torch.zeros(D)

    def forward(self, h):
        self.mean = average(self.mean, h)
        return h - self.mean


class KeptBuffer(Kept):
    def start(self):
        self.register_buffer("mean", torch.zeros(D))


class KeptFrozen(Kept):
    def start(self):
        self.mean = nn.Parameter(torch.zeros(D), requires_grad=False)

    def forward(self, h):
        self.mean.data = average(self.mean, h)
        return h - self.mean.clone()


class KeptNumber(Kept):
    def start(self):
        self.level = 0.0

    def forward(self, h):
        self.level = 0.9 * self.level + float(h.detach().mean())
        return h - self.level


class KeptList(Kept):
    def start(self):
        self.past = []

    def forward(self, h):
        out = h - (self.past[-1] if self.past else 0)
        self.past.append(h.detach().mean(0))
        return out


class KeptDictionary(Kept):
    def start(self):
        self.past = {"mean": torch.zeros(D)}

    def forward(self, h):
        out = h - self.past["mean"]
        self.past["mean"] = average(self.past["mean"], h)
        return out


class KeptFirst(Kept):
    """Learns its normalisation from the first batch, as actnorm does."""

    def start(self):
        self.register_buffer("mean", torch.zeros(D))
        self.register_buffer("ready", torch.zeros((), dtype=torch.bool))

    def forward(self, h):
        if not self.ready:
            self.mean.copy_(h.detach().mean(0))
            self.ready.fill_(True)
        return h - self.mean


class ForEvaluation(nn.Module):
    """Learns in training what evaluation uses, as BatchNorm does, without mixing anything in training. where: what holds it."""

    def __init__(self, where):
        super().__init__()
        self.where = where
        if where == "frozen":
            self.mean = nn.Parameter(torch.zeros(D), requires_grad=False)
        elif where == "closure":
            kept = [torch.zeros(D)]
            self.read, self.write = (lambda: kept[0]), (lambda x: kept.__setitem__(0, x))
        else:
            self.mean = {"attribute": torch.zeros(D), "list": [torch.zeros(D)], "number": 0.0,
                         "dictionary": {0: torch.zeros(D)}}[where]

    def get(self):
        if self.where == "closure":
            return self.read()
        return self.mean[0] if self.where in ("list", "dictionary") else self.mean

    def put(self, mean):
        if self.where == "closure":
            self.write(mean)
        elif self.where in ("list", "dictionary"):
            self.mean[0] = mean
        elif self.where == "frozen":
            self.mean.data = mean
        else:
            self.mean = float(mean.mean()) if self.where == "number" else mean

    def forward(self, h):
        if self.training:
            self.put(average(self.get(), h))
            return h
        return h - self.get()


class KeptGenerator(Kept):
    """Cannot be copied."""

    def start(self):
        def means():
            mean = torch.zeros(D)
            while True:
                h = yield mean
                mean = average(mean, h)
        self.means = means()
        next(self.means)

    def forward(self, h):
        return h - self.means.send(h)


makers = {
    "module_attribute": Kept, "module_buffer": KeptBuffer, "module_frozen_parameter": KeptFrozen,
    "module_number": KeptNumber, "module_list": KeptList, "module_dictionary": KeptDictionary,
    "module_generator": KeptGenerator,
    **{f"for_evaluation_in_{where}": lambda m, where=where: ForEvaluation(where)
       for where in ("attribute", "frozen", "list", "dictionary", "number", "closure")},
    "buffer": buffer, "buffer_not_persistent": lambda m: buffer(m, False), "buffer_in_place": buffer_in_place,
    "buffer_that_nothing_reads": buffer_unused, "buffer_behind_dropout": buffer_and_noise,
    "functional_batch_norm_running": running_batch_norm, "frozen_parameter": frozen_parameter,
    "frozen_parameter_that_nothing_reads": frozen_parameter_unused, "trained_parameter": trained_parameter,
    "attribute": attribute, "number": number, "text": text, "list": listed, "dictionary": dictionary,
    "namespace": namespace, "closure": closure, "queue": queue, "generator": generator, "global": global_variable,
    "context_variable": context_variable, "class_attribute": class_attribute, "default_argument": default_argument,
    "partial": partial, "array": array, "file": file, "random_state": random_state, "largest_so_far": largest_so_far,
    "set_of_patterns": seen_signs, "nearest_neighbours": neighbours, "codebook": codebook, "key_value_cache": cache,
    "second_call_only": second_call_only, "statistics_of_the_first_batch": KeptFirst, "hook": hook_memory,
    "gradient_memory": gradient_memory, "attribute_behind_drop_path": noisy_attribute,
    "statistics_and_attribute_behind_dropout": noisy_statistics_in_attribute,
}


class Vocabulary(nn.Module):
    """Gives every new word the next row of its table."""

    def __init__(self):
        super().__init__()
        self.table, self.head, self.rows = nn.Embedding(2 * inputs.WORDS, D), nn.Linear(D, 3), {}

    def forward(self, ids):
        rows = [[self.rows.setdefault(word, len(self.rows)) for word in row] for row in ids.tolist()]
        return self.head(self.table(torch.tensor(rows, dtype=torch.long).view(ids.shape)).sum(1))


def counted_words(m, ids, h):
    m.counts = getattr(m, "counts", torch.zeros(inputs.WORDS)) + torch.bincount(ids.flatten(), minlength=inputs.WORDS)
    return m.head((torch.tanh(m.first(h)) / m.counts.to(h.dtype)[ids][..., None].sqrt()).sum(1))


def cases() -> list[Case]:
    out = []
    for name, make in makers.items():
        out.append(Case("memory_" + name, lambda make=make: with_memory(make)(), inputs.vectors))
        out.append(Case("memory_" + name + "_below_root", lambda make=make: with_memory(make)(Rooted), inputs.vectors))
    out.append(Case("memory_vocabulary", Vocabulary, inputs.ids))
    out.append(Case("memory_counted_words", lambda: Table(counted_words), inputs.ids))
    return out
