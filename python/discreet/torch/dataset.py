"""What the engine can determine about a data set without reading private values: which places contain the same record, and a
digest by which a resumed run recognises its data."""

from __future__ import annotations

import hashlib
from typing import Any, Optional

import numpy
import torch
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from discreet.torch.errors import refuse

# When a run with a directory starts, data sets in memory of up to this many bytes are hashed.
MOST_HASHED = 1 << 27
Rows = Optional[NDArray[numpy.int64]]  # None: every row once
Leaves = list[tuple[Any, Rows]]  # data sets, and their used rows


def check_places(dataset: Any) -> None:
    """Rejects a data set in which one record has several places: each would be drawn and clipped separately, and the guarantee
    of one place is not that of the record. Detects Subset, ConcatDataset, tensors that share memory, and wrappers that are
    longer than their content; a data set of another class is assumed to repeat no record."""
    most = most_places(dataset)
    if most > 1:
        refuse(f"one record has {most} places in the data set (repeated indices of a Subset, a data set concatenated with "
               "itself or longer than the one that it wraps, or rows of tensors that share memory, as overlapping windows do): "
               "the guarantee is for one place, and that of a record would be weaker. Give each record one place: to weight "
               "records, weight their losses; for a series, use windows that do not overlap; let collate_fn add public "
               "constants")


def most_places(dataset: Any) -> int:
    leaves: Leaves = []
    _collect(dataset, None, leaves)
    most = max((_repeats(part, rows) for part, rows in leaves), default=1)
    if len(leaves) == 1:
        return most
    rows_of: dict[int, list[NDArray[numpy.int64]]] = {}
    owners: dict[int, set[int]] = {}  # for every data set below: the parts that reach it
    for part, rows in leaves:
        rows_of.setdefault(id(part), []).append(_all(part, rows))
        for below in (part, *_below(part)):
            owners.setdefault(id(below), set()).add(id(part))
    for repeated in rows_of.values():
        if len(repeated) > 1:
            most = max(most, int(numpy.bincount(numpy.concatenate(repeated)).max(initial=1)))
    # Several parts contain the same data set: equal rows cannot be determined.
    most = max(most, max(map(len, owners.values()), default=1))
    addresses = [_addresses(part, _all(part, rows)) for part, rows in leaves if _in_memory(part)]
    if len(addresses) > 1:
        _, counts = numpy.unique(numpy.concatenate(addresses), return_counts=True)
        most = max(most, int(counts.max(initial=1)))
    return most


def _collect(dataset: Any, rows: Rows, leaves: Leaves) -> None:
    """Appends (data set, its used rows) for every part that is not a known wrapper."""
    if isinstance(dataset, Subset):
        chosen = numpy.asarray(dataset.indices)
        if chosen.dtype.kind in "iu":
            chosen = chosen.astype(numpy.int64)
            whole: Any = dataset.dataset
            chosen = numpy.where(chosen < 0, chosen + len(whole), chosen)
            _collect(whole, chosen if rows is None else chosen[rows], leaves)
            return
    if isinstance(dataset, ConcatDataset):
        begin = 0
        for part, end in zip(dataset.datasets, dataset.cumulative_sizes):
            within = None if rows is None else rows[(rows >= begin) & (rows < end)] - begin
            _collect(part, within, leaves)
            begin = end
        return
    inner = _held(dataset)
    if len(inner) == 1 and len(inner[0]) == len(dataset):  # a wrapper, such as one with a transform
        _collect(inner[0], rows, leaves)
    elif len(inner) == 1 and 0 < len(inner[0]) < len(dataset):  # it repeats rows; equal rows cannot be determined
        _collect(inner[0], numpy.arange(len(dataset)) % len(inner[0]), leaves)
    else:
        leaves.append((dataset, rows))


def _all(dataset: Any, rows: Rows) -> NDArray[numpy.int64]:
    return numpy.arange(len(dataset)) if rows is None else rows


def _repeats(dataset: Any, rows: Rows) -> int:
    """How often one row is used, or how many rows share a number in memory."""
    most = 1 if rows is None else int(numpy.bincount(rows).max(initial=1))
    if isinstance(dataset, TensorDataset):
        most = max([most, *(_overlap(x, rows) for x in dataset.tensors if x.layout == torch.strided and x.dim() > 0)])
    return most


def _overlap(x: torch.Tensor, rows: Rows) -> int:
    """How many rows share one number in memory, as overlapping windows (Tensor.unfold) and expanded tensors do. If only some
    rows are used, an upper bound."""
    chosen = numpy.arange(len(x)) if rows is None else numpy.unique(rows)
    if len(chosen) < 2 or x[0].numel() == 0:
        return 1
    each = x.stride(0)
    if each == 0:
        return len(chosen)
    within = 1 + sum((size - 1) * stride for size, stride in zip(x.shape[1:], x.stride()[1:]))
    if each >= within:
        return 1
    offsets = numpy.zeros(1, dtype=numpy.int64)
    for size, stride in zip(x.shape[1:], x.stride()[1:]):
        offsets = numpy.unique(offsets[:, None] + numpy.arange(size) * stride)
    # Row r contains the numbers r * each + offset. Offsets with equal remainders meet in rows that are as far apart as the
    # offsets.
    places, remainders = numpy.divmod(offsets, each)
    order = numpy.lexsort((places, remainders))
    places, remainders = places[order], remainders[order]
    apart = numpy.diff(places)[numpy.diff(remainders) == 0]
    nearest, farthest = int(numpy.diff(chosen).min()), int(chosen[-1] - chosen[0])
    if not ((apart <= farthest).any() and numpy.ptp(places) >= nearest):
        return 1
    keys = remainders * (int(places.max()) + farthest + 1) + places
    return int((numpy.searchsorted(keys, keys + farthest, side="right") - numpy.arange(len(keys))).max())


def _in_memory(dataset: Any) -> bool:
    return isinstance(dataset, TensorDataset) and len(dataset.tensors) > 0 and dataset.tensors[0].dim() > 0


def _addresses(dataset: TensorDataset, rows: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
    first = dataset.tensors[0]
    return first.data_ptr() + rows * (first.stride(0) * first.element_size())


def _held(dataset: Any) -> list[Any]:
    """The data sets among the attributes of an object."""
    return [x for x in getattr(dataset, "__dict__", {}).values() if isinstance(x, Dataset) and hasattr(x, "__len__")]


def _below(dataset: Any, depth: int = 4) -> list[Any]:
    found = _held(dataset) if depth else []
    return found + [x for one in found for x in _below(one, depth - 1)]


def digest(dataset: Any, given: str | bytes | None) -> bytes:
    """The digest of the records: given by the caller, or of tensors in memory; otherwise empty."""
    if given is not None:
        try:
            out = bytes.fromhex(given) if isinstance(given, str) else bytes(given)
        except ValueError:
            out = b""
        if len(out) != 32:
            refuse("data_digest must be a SHA-256 digest: 32 bytes, or 64 hexadecimal digits")
        return out
    leaves: Leaves = []
    _collect(dataset, None, leaves)
    tensors = [x for part, _ in leaves if isinstance(part, TensorDataset) for x in part.tensors]
    if not all(isinstance(part, TensorDataset) for part, _ in leaves) or any(x.layout != torch.strided for x in tensors) \
            or sum(x.numel() * x.element_size() for x in tensors) > MOST_HASHED:
        return b""
    hashed = hashlib.sha256(b"discreet.torch tensors 1\n")
    for part, rows in leaves:
        hashed.update(f"part {len(part)} {rows is None}\n".encode())
        if rows is not None:
            hashed.update(rows.astype("<i8").tobytes())
        for x in part.tensors:
            hashed.update(f"{x.dtype} {list(x.shape)}\n".encode())
            hashed.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return hashed.digest()
