"""What the gradient of each kind of layer is, record by record.

A rule is a function (module, inputs, g) → {parameter name: piece}: `inputs` are the tensors the layer was called with,
`g` the gradient of its output, both with the record first, in float32 or float64. Only parameters that are trained are asked
for. `register_grad_sampler` adds rules; a layer without one is served by `generic`.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from discreet.torch.pieces import CHUNK, Column, Explicit, Outer, Rows

RULES: dict[type, object] = {}
_OWN: set = set()  # this file's rules, of weights and biases


def register_grad_sampler(*kinds: type):
    """Decorates a function (layer, activations, backprops) → {parameter: gradients [records, ...]}, in the shape of
    Opacus; it serves every layer of these classes made private afterwards. The self-check compares it with autograd."""

    def decorate(sampler):
        def rule(module, inputs, g):
            by_parameter = sampler(module, list(inputs), g)
            names = {id(p): name for name, p in module.named_parameters(recurse=False)}
            return {names[id(p)]: Explicit(gradients) for p, gradients in by_parameter.items()}
        for kind in kinds:
            RULES[kind] = rule
        return sampler
    return decorate


def rule_of(module: nn.Module):
    """The rule of this class, or of one whose forward it shares; a subclass with its own computes something else."""
    for kind in type(module).__mro__:
        if kind in RULES and type(module).forward is kind.forward:
            return RULES[kind]
    return None


def knows(rule, module: nn.Module) -> bool:
    """Whether the rule is for these parameters: hooks such as the older weight_norm put others in their place."""
    own = {name for name, p in module.named_parameters(recurse=False) if p.requires_grad}
    return rule not in _OWN or own <= {"weight", "bias"}


def _rule(*kinds: type):
    def decorate(function):
        for kind in kinds:
            RULES[kind] = function
        _OWN.add(function)
        return function
    return decorate


def trained(module: nn.Module, name: str) -> bool:
    parameter = getattr(module, name, None)
    return parameter is not None and parameter.requires_grad


def outer(a: torch.Tensor, g: torch.Tensor, weight: bool, bias: bool) -> dict:
    """Of a matrix and its bias."""
    n = g.shape[0]
    a, g = a.reshape(n, -1, a.shape[-1]), g.reshape(n, -1, g.shape[-1])
    out = {"weight": Outer(a, g).cheapest()} if weight else {}
    return out | {"bias": Column(g)} if bias else out


@_rule(nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)
def linear(module, inputs, g):
    return outer(inputs[0], g, trained(module, "weight"), trained(module, "bias"))


@_rule(nn.Embedding)
def embedding(module, inputs, g):
    ids = inputs[0].reshape(g.shape[0], -1)
    g = g.reshape(*ids.shape, -1)
    if module.padding_idx is not None:
        g = g.masked_fill((ids == module.padding_idx).unsqueeze(2), 0)
    return {"weight": Rows(ids, g, module.num_embeddings)}


def _affine(module, normalized, g, shape):
    """Of a weight and a bias that every record's normalized input is multiplied and shifted by. shape: [n, rest, d]."""
    g = g.reshape(shape)
    out = {}
    if trained(module, "weight"):
        out["weight"] = Explicit((g * normalized.reshape(shape)).sum(1))
    if trained(module, "bias"):
        out["bias"] = Explicit(g.sum(1))
    return {name: Explicit(piece.gradients.reshape(-1, *getattr(module, name).shape)) for name, piece in out.items()}


@_rule(nn.LayerNorm)
def layer_norm(module, inputs, g):
    normalized = F.layer_norm(inputs[0], module.normalized_shape, eps=module.eps)
    return _affine(module, normalized, g, (g.shape[0], -1, module.weight.numel()))


@_rule(nn.RMSNorm)
def rms_norm(module, inputs, g):
    normalized = F.rms_norm(inputs[0], module.normalized_shape, eps=module.eps)
    return _affine(module, normalized, g, (g.shape[0], -1, module.weight.numel()))


def _channels(module, normalized, g):
    """As _affine, with one weight a channel [n, C, ...]."""
    n, channels = g.shape[:2]
    swap = lambda x: x.reshape(n, channels, -1).transpose(1, 2)  # noqa: E731
    return _affine(module, swap(normalized), swap(g), (n, -1, channels))


@_rule(nn.GroupNorm)
def group_norm(module, inputs, g):
    return _channels(module, F.group_norm(inputs[0], module.num_groups, eps=module.eps), g)


@_rule(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
def instance_norm(module, inputs, g):
    return _channels(module, F.instance_norm(inputs[0], eps=module.eps), g)


@_rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def conv(module, inputs, g):
    out = {}
    if trained(module, "bias"):
        out["bias"] = Explicit(g.flatten(2).sum(2))
    if trained(module, "weight"):
        out["weight"] = Explicit(conv_weights(module, inputs[0], g))
    return out


def conv_weights(module, x, g):
    """[n, *weight.shape]: products of output gradients with a strided view of the windows, a few records at a time."""
    n, groups, kernel = g.shape[0], module.groups, module.kernel_size
    dims = len(kernel)
    if isinstance(module.padding, str) or module.padding_mode != "zeros":
        x = F.pad(x, module._reversed_padding_repeated_twice,
                  mode="constant" if module.padding_mode == "zeros" else module.padding_mode)
    elif any(module.padding):
        x = F.pad(x, [p for pad in reversed(module.padding) for p in (pad, pad)])
    x = x.contiguous()
    out = g.new_empty(n, *module.weight.shape)
    places = g.shape[2:]
    strides = x.stride()
    window = x.shape[1] // groups * module.weight[0, 0].numel() * places.numel()
    step = max(1, min(n, (CHUNK >> 3) // max(1, window * groups)))
    for begin in range(0, n, step):
        rows = slice(begin, min(n, begin + step))
        count = rows.stop - begin
        part = x[rows]
        # [records, groups, channels, kernel…, places…] without a copy.
        windows = part.as_strided(
            (count, groups, x.shape[1] // groups, *kernel, *places),
            (strides[0], strides[1] * (x.shape[1] // groups), strides[1],
             *(s * d for s, d in zip(strides[2:], module.dilation)),
             *(s * d for s, d in zip(strides[2:], module.stride))), part.storage_offset())
        a = windows.reshape(count * groups, -1, places.numel())
        b = g[rows].reshape(count * groups, -1, places.numel())
        torch.bmm(b, a.transpose(1, 2), out=out[rows].view(count * groups, b.shape[1], a.shape[1]))
    assert dims == x.dim() - 2
    return out
