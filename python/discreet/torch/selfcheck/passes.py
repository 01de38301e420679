"""The inputs and results of a pass of the self-check."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from discreet.torch.clipper import shapes_of
from discreet.torch.generic import GenericSite


def norm_of(x: torch.Tensor) -> float:
    """An estimate for comparisons; not used for clipping."""
    return float(torch.linalg.vector_norm(x if x.dtype == torch.float64 else x.float()))


class FixedScales:
    """Multiplies each record by a number that is fixed in advance."""

    def __init__(self, scales: torch.Tensor) -> None:
        self.scales = scales
        self.norms: torch.Tensor | None = None

    def take_norms(self, norms: torch.Tensor) -> torch.Tensor:
        self.norms = norms.clone()
        return self.scales.view(-1, 1).expand_as(norms)


class Outcome(NamedTuple):
    """The result of one pass through the clipper: outputs, norms, sums of scaled gradients, and the module's state after it."""

    outputs: list[tuple[str, torch.Tensor]]
    norms: torch.Tensor
    sums: dict[str, torch.Tensor]
    state: dict[str, Any]


class Twice(NamedTuple):
    """Two passes that start from the module's initial state; held: the module's state between them."""

    first: Outcome
    held: dict[str, Any]
    second: Outcome


def copied(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x


def same_tree(a: Any, b: Any) -> bool:
    """True if two inputs are equal in every bit."""
    (a, spec), (b, other) = tree_flatten(a), tree_flatten(b)
    return spec == other and all(
        x.dtype == y.dtype and torch.equal(x, y) if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
        else type(x) is type(y) and not isinstance(x, torch.Tensor) and x == y for x, y in zip(a, b))


class Rows(list[int]):
    """The row counts of the tensors of one call; rank: of the first tensor."""

    rank = 0


class Watch:
    """Records how many rows a layer sees."""

    def __init__(self, site: object, seen: list[Rows]) -> None:
        self.site, self.seen = site, seen

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
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
