"""What a pass of the self-check takes and leaves."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from discreet.torch.clipper import shapes_of
from discreet.torch.generic import GenericSite


def norm_of(x: torch.Tensor) -> float:
    """An estimate, for comparisons: not of what is clipped."""
    return torch.linalg.vector_norm(x if x.dtype == torch.float64 else x.float()).item()


class FixedScales:
    """Multiplies each record by a number that is known before."""

    def __init__(self, scales: torch.Tensor) -> None:
        self.scales, self.norms = scales, None

    def take_norms(self, norms: torch.Tensor) -> torch.Tensor:
        self.norms = norms.clone()
        return self.scales.view(-1, 1).expand_as(norms)


class Outcome(NamedTuple):
    """Of one pass through the clipper: outputs, norms, the sums of scaled gradients, and the module's state afterwards."""

    outputs: list
    norms: torch.Tensor
    sums: dict[str, torch.Tensor]
    state: dict


class Twice(NamedTuple):
    """Two passes of a module as it was at first; held: by the module between them."""

    first: Outcome
    held: dict
    second: Outcome


def copied(x):
    return x.clone() if isinstance(x, torch.Tensor) else x


def same_tree(a, b) -> bool:
    """Of inputs: in every bit."""
    (a, spec), (b, other) = tree_flatten(a), tree_flatten(b)
    return spec == other and all(
        x.dtype == y.dtype and torch.equal(x, y) if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
        else type(x) is type(y) and not isinstance(x, torch.Tensor) and x == y for x, y in zip(a, b))


class Rows(list):
    """Of the tensors of one call; rank: that of the first."""

    rank = 0


class Watch:
    """Notes how many rows a layer sees."""

    def __init__(self, site, seen: list) -> None:
        self.site, self.seen = site, seen

    def __call__(self, module, args, kwargs) -> None:
        shapes = shapes_of((args, kwargs))
        dims = [0] * len(shapes)
        if isinstance(self.site, GenericSite):
            dims = self.site.dims(len(shapes))
        elif isinstance(module, nn.MultiheadAttention):
            dims = [0 if module.batch_first else 1] * len(shapes)
        call = Rows(shape[dim] if len(shape) > dim else 1 for shape, dim in zip(shapes, dims))
        call.rank = len(shapes[0]) if shapes else 0
        if call:
            self.seen.append(call)
