"""The per-record gradients of each kind of layer.

A rule is a function (module, inputs, g) → {parameter name: piece}: `inputs` are the tensors with which the layer was called,
`g` is the gradient of its output, both with the record dimension first, in float32 or float64. A rule returns only trained
parameters. `register_grad_sampler` adds rules; `generic` handles layers without one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional as F

from discreet.torch.pieces import CHUNK, Column, Explicit, Outer, Piece, Rows

Rule = Callable[[Any, Sequence[torch.Tensor], torch.Tensor], "dict[str, Piece]"]
Sampler = TypeVar("Sampler", bound="Callable[[Any, list[torch.Tensor], torch.Tensor], dict[nn.Parameter, torch.Tensor]]")
RULES: dict[type, Rule] = {}
_OWN: set[Rule] = set()  # the rules of this file, for weights and biases


def register_grad_sampler(*kinds: type) -> Callable[[Sampler], Sampler]:
    """Decorates a function (layer, activations, backprops) → {parameter: gradients [records, ...]}, with the interface of
    Opacus. It applies to every layer of these classes that is made private afterwards. The self-check compares it with
    autograd."""

    def decorate(sampler: Sampler) -> Sampler:
        def rule(module: Any, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> dict[str, Piece]:
            by_parameter = sampler(module, list(inputs), g)
            names = {id(p): name for name, p in module.named_parameters(recurse=False)}
            return {names[id(p)]: Explicit(gradients) for p, gradients in by_parameter.items()}
        for kind in kinds:
            RULES[kind] = rule
        return sampler
    return decorate


def rule_of(module: nn.Module) -> Rule | None:
    """The rule of this class, or of a base class with the same forward; another forward computes something else."""
    for kind in type(module).__mro__:
        if kind in RULES and type(module).forward is getattr(kind, "forward", None):
            return RULES[kind]
    return None


def knows(rule: Rule, module: nn.Module) -> bool:
    """True if the rule covers these parameters: hooks such as the older weight_norm replace them by others."""
    own = {name for name, p in module.named_parameters(recurse=False) if p.requires_grad}
    return rule not in _OWN or own <= {"weight", "bias"}


def _rule(*kinds: type) -> Callable[[Rule], Rule]:
    def decorate(function: Rule) -> Rule:
        for kind in kinds:
            RULES[kind] = function
        _OWN.add(function)
        return function
    return decorate


def trained(module: nn.Module, name: str) -> bool:
    parameter = getattr(module, name, None)
    return parameter is not None and parameter.requires_grad


def outer(a: torch.Tensor, g: torch.Tensor, weight: bool, bias: bool) -> dict[str, Piece]:
    """The gradients of a matrix and its bias."""
    n = g.shape[0]
    a, g = a.reshape(n, -1, a.shape[-1]), g.reshape(n, -1, g.shape[-1])
    out: dict[str, Piece] = {"weight": Outer(a, g).cheapest()} if weight else {}
    return out | {"bias": Column(g)} if bias else out


@_rule(nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)
def linear(module: Any, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> dict[str, Piece]:
    return outer(inputs[0], g, trained(module, "weight"), trained(module, "bias"))


@_rule(nn.Embedding)
def embedding(module: Any, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> dict[str, Piece]:
    ids = inputs[0].reshape(g.shape[0], -1)
    g = g.reshape(*ids.shape, -1)
    if module.padding_idx is not None:
        g = g.masked_fill((ids == module.padding_idx).unsqueeze(2), 0)
    return {"weight": Rows(ids, g, module.num_embeddings)}


def _affine(module: Any, normalized: torch.Tensor, g: torch.Tensor, shape: tuple[int, ...]) -> dict[str, Piece]:
    """The gradients of the weight and the bias that scale and shift every record's normalized input. shape: [n, rest, d]."""
    g = g.reshape(shape)
    out: dict[str, Explicit] = {}
    if trained(module, "weight"):
        out["weight"] = Explicit((g * normalized.reshape(shape)).sum(1))
    if trained(module, "bias"):
        out["bias"] = Explicit(g.sum(1))
    return {name: Explicit(piece.gradients.reshape(-1, *getattr(module, name).shape)) for name, piece in out.items()}


@_rule(nn.LayerNorm)
def layer_norm(module: Any, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> dict[str, Piece]:
    normalized = F.layer_norm(inputs[0], module.normalized_shape, eps=module.eps)
    return _affine(module, normalized, g, (g.shape[0], -1, module.weight.numel()))


@_rule(nn.RMSNorm)
def rms_norm(module: Any, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> dict[str, Piece]:
    normalized = F.rms_norm(inputs[0], module.normalized_shape, eps=module.eps)
    return _affine(module, normalized, g, (g.shape[0], -1, module.weight.numel()))


def _channels(module: Any, normalized: torch.Tensor, g: torch.Tensor) -> dict[str, Piece]:
    """As _affine, with one weight per channel [n, C, ...]."""
    n, channels = g.shape[:2]

    def swap(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(n, channels, -1).transpose(1, 2)

    return _affine(module, swap(normalized), swap(g), (n, -1, channels))


@_rule(nn.GroupNorm)
def group_norm(module: Any, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> dict[str, Piece]:
    return _channels(module, F.group_norm(inputs[0], module.num_groups, eps=module.eps), g)


@_rule(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
def instance_norm(module: Any, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> dict[str, Piece]:
    return _channels(module, F.instance_norm(inputs[0], eps=module.eps), g)


@_rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def conv(module: Any, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> dict[str, Piece]:
    out: dict[str, Piece] = {}
    if trained(module, "bias"):
        out["bias"] = Explicit(g.flatten(2).sum(2))
    if trained(module, "weight"):
        out["weight"] = Explicit(conv_weights(module, inputs[0], g))
    return out


def conv_weights(module: Any, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """[n, *weight.shape]: products of output gradients and a strided view of the windows, a few records at a time."""
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
