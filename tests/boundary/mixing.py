"""Functions of vectors in which records of a batch meet."""

import torch
from torch.nn import functional as F


def standardized(h):
    return (h - h.mean(0)) / (h.std(0, correction=0) + 0.1)


def drop_path(h, p=0.3):
    return h * (torch.rand(len(h), *[1] * (h.dim() - 1)) > p).to(h.dtype) / (1 - p)


def attention_across(h):
    return torch.softmax(h @ h.t(), 1) @ h


def neighbour(h):
    away = torch.cdist(h, h) + 1e9 * torch.eye(len(h), dtype=h.dtype)
    return h + h[away.argmin(1)]


def ghost(h):
    return torch.cat([standardized(part) for part in h.split(2)])


def capacity(h):
    """A router of two experts with room for half of the batch each: who comes late is dropped."""
    expert = (h[:, 0] > 0).long()
    place = F.one_hot(expert, 2).cumsum(0).gather(1, expert[:, None]).squeeze(1)
    return h * (place <= len(h) // 2).to(h.dtype)[:, None]


def expert_choice(h):
    """Every expert takes its best records."""
    out = torch.zeros_like(h)
    for k in range(2):
        best = h[:, k].topk(max(1, len(h) // 2)).indices
        out = out.index_add(0, best, h[best] * (k + 1))
    return out


def whitened(h):
    centred = h - h.mean(0)
    covariance = centred.t() @ centred / len(h) + 0.1 * torch.eye(h.shape[1], dtype=h.dtype)
    return centred @ torch.linalg.inv(covariance)


def fake_quantised(h):
    step = h.detach().abs().max() / 7
    return h + ((h / step).round() * step - h).detach()


def looped(h):
    while h.detach().abs().max() > 0.5:
        h = h * 0.8
    return h


def content_dropout(h):
    """The mask is drawn with a seed that comes from the batch."""
    g = torch.Generator().manual_seed(int(h.detach().sum().abs() * 1e4) % 2**31)
    return h * (torch.rand(h.shape, generator=g) > 0.5).to(h.dtype)


def frequency_weighted(h):
    kind = (h[:, 0] > 0).long()
    return h / torch.bincount(kind, minlength=2)[kind].to(h.dtype)[:, None]


class MixedBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    def backward(ctx, g):
        return g + g.mean(0)


class NormalisedBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    def backward(ctx, g):
        return g / (g.norm() + 1e-6)


def hooked_gradient(h):
    h = h * 1.0
    if h.requires_grad:
        h.register_hook(lambda g: g - g.mean(0))
    return h


def in_place(h):
    h = h.clone()
    h[1:] += h[:-1]
    return h
