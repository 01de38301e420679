"""The outputs of a module for a batch, and the part of each record."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Union

import torch

from discreet.torch.errors import refuse

SCALAR, SHARED = "scalar", "shared"
Floats = list[tuple[str, torch.Tensor]]  # tensors with their places
Place = Union[int, str]  # the record dimension, SHARED or SCALAR


_PLAIN = (int, float, complex, str, bytes, bool, type(None), range, slice, enum.Enum, type, torch.dtype, torch.device,
          torch.Size, torch.layout)


def floats_of(tree: Any) -> Floats:
    """Every floating-point or complex tensor, with its place."""
    found: Floats = []
    for path, y in leaves_of(tree):
        if isinstance(y, torch.Tensor):
            if y.is_floating_point() or y.is_complex():
                found.append((path, y))
        elif not isinstance(y, _PLAIN):
            refuse(f"self-check: the output{path} is a {type(y).__name__}, whose values cannot be checked; return tensors, or "
                   "containers and data classes of tensors and plain values")
    return found


def leaves_of(tree: Any) -> list[tuple[str, object]]:
    """The leaves with their places. Containers and objects with attributes are opened; tensors, plain values and everything
    else are leaves."""
    found: list[tuple[str, object]] = []
    seen: set[int] = set()

    def walk(path: str, one: object) -> None:
        below = below_of(one)
        if below is None:
            found.append((path, one))
        elif id(one) not in seen:
            seen.add(id(one))
            for key, value in below:
                walk(path + key, value)

    walk("", tree)
    return found


def below_of(one: Any) -> list[tuple[str, object]] | None:
    """The content of a container or of an object with attributes; None for a leaf."""
    if isinstance(one, (torch.Tensor, torch.nn.Module, *_PLAIN)) or type(one).__module__ == "numpy":
        return None
    attributes = [(f".{key}", value) for key, value in getattr(one, "__dict__", {}).items()]
    for kind in type(one).__mro__:
        slots = vars(kind).get("__slots__", ())
        attributes += [(f".{key}", getattr(one, key)) for key in ((slots,) if isinstance(slots, str) else slots)
                       if key not in ("__dict__", "__weakref__") and hasattr(one, key)]
    if isinstance(one, Mapping):
        # Some dictionaries have the same values as attributes.
        held = {id(value) for value in one.values()}
        return [(f"[{key!r}]", value) for key, value in one.items()] + [pair for pair in attributes if id(pair[1]) not in held]
    if isinstance(one, (list, tuple, deque)):
        return [(f"[{i}]", value) for i, value in enumerate(one)] + attributes
    return attributes if attributes and not callable(one) else None


def places_of(batch: Floats, alone: Sequence[Floats]) -> list[Place]:
    """By output: the record dimension, SHARED if it has none, or SCALAR. A record's part may be longer in the batch than alone,
    because of padding."""
    n = len(alone)
    places: list[Place] = []
    if any(len(one) != len(batch) for one in alone):
        refuse("self-check: the module returns other outputs for a batch than for one record alone; return the same structure")
    for j, (path, y) in enumerate(batch):
        shapes = [one[j][1].shape for one in alone]
        if any(len(shape) != y.dim() for shape in shapes):
            refuse(f"self-check: the output{path} has {y.dim()} dimensions for {n} records, but another number for one record "
                   "alone; keep the record dimension (pass squeeze() its dimension)")
        most = [max(sizes) for sizes in zip(*shapes)]
        of_records = [d for d in range(y.dim()) if y.shape[d] == n * most[d]
                      and all(y.shape[e] == most[e] for e in range(y.dim()) if e != d)]
        if y.dim() == 0:
            places.append(SCALAR)
        elif of_records:
            places.append(of_records[0])
        elif list(y.shape) == most:
            places.append(SHARED)
        else:
            refuse(f"self-check: the output{path} has the shape {list(y.shape)} for {n} records, and {list(shapes[0])} for one "
                   "alone, so the part of each record cannot be determined. Return the records in one dimension, with the same "
                   "number of rows for each")
    return places


def part(y: torch.Tensor, dim: int, n: int, i: int, shape: torch.Size) -> torch.Tensor:
    """The part of the i-th of n records, without padding beyond its shape alone."""
    block: torch.Tensor = y.unflatten(dim, (n, -1)).select(dim, i)
    for d, size in enumerate(shape):
        if block.shape[d] != size:
            block = block.narrow(d, 0, size)
    return block


def loss_of(outputs: Floats, places: Sequence[Place], shapes: Sequence[Sequence[torch.Size]], numbers: Sequence[int],
            reductions: Mapping[int, str]) -> torch.Tensor:
    """The sum of one number per record, computed from all its outputs. shapes: by record, of its outputs alone."""
    n, total = len(numbers), torch.zeros((), dtype=torch.float64)
    for j, ((_, y), place) in enumerate(zip(outputs, places)):
        if place == SCALAR:
            if j in reductions:
                total = total + (n if reductions[j] == "mean" else 1) * y.double()
        elif isinstance(place, int) and y.requires_grad:
            y = torch.view_as_real(y) if y.is_complex() else y
            of = [shapes[i][j] for i in numbers]
            if y.unflatten(place, (n, -1)).select(place, 0).shape == of[0] and len(set(of)) == 1:
                total = total + _of_rows(y.unflatten(place, (n, -1)).movedim(place, 0).reshape(n, -1), numbers)
                continue
            for position, i in enumerate(numbers):
                total = total + _of_rows(part(y, place, n, position, of[position]).reshape(1, -1), [i])
    return total


def _of_rows(y: torch.Tensor, numbers: Sequence[int]) -> torch.Tensor:
    """y: [records, values], of records with these numbers."""
    y = torch.where(y.isfinite(), y, 0).double()
    ramp = torch.sin(torch.arange(1, y.shape[1] + 1, dtype=y.dtype))
    weights = torch.tensor([1.0 + i % 4 for i in numbers], dtype=y.dtype)
    return (weights * ((y * ramp).sum(1) + 0.1 * y.square().sum(1))).sum()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if equal in every bit, up to the signs of zeros and the kinds of NaN."""
    return torch.equal(a, b) or (a.shape == b.shape and torch.equal(a.isnan(), b.isnan())
                                 and torch.equal(a.nan_to_num(), b.nan_to_num()))


def away(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference, relative to the largest value."""
    a, b = (torch.view_as_real(x) if x.is_complex() else x for x in (a, b))
    finite = a.isfinite() & b.isfinite()
    if not torch.equal(a.isfinite(), b.isfinite()):
        return float("inf")
    a, b = (torch.where(finite, x, 0).double() for x in (a, b))
    size = float(b.abs().max()) if b.numel() else 0.0
    return float((a - b).abs().max()) / size if size else 0.0 if not b.numel() else float(a.abs().max())
