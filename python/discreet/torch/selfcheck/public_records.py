"""Synthetic records for the self-check: they have the shapes and types of the data set's records, or of `example_inputs`, but
not their values.

A record is identified by its number and its version, so that it can be alone, with others, left out, or replaced. Where the
loader has a collate function, records pass through it; their lengths differ if it pads. A tensor whose name contains "mask" has
ones up to a length that differs from record to record. Other sequences of indices end in zeros from that length on, or in -100
where the module accepts it. Where a record has a single index, every second record has -100 instead, under the same condition.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_map, tree_unflatten
from torch.utils.data import DataLoader

from discreet.errors import Error
from discreet.torch.errors import refuse

Call = tuple[tuple[Any, ...], dict[str, Any]]  # the arguments of a call: args, kwargs

# A discreet.Error is a ValueError too, but it is a verdict of the check: an `except Error: raise` comes before these.
CANNOT_CALL = (TypeError, RuntimeError, LookupError, ValueError, AttributeError, NotImplementedError, AssertionError)
COUNTS = (5, 7, 11, 13, 17, 19, 23)  # numbers of records to choose from: the first one that equals no other dimension
IGNORED = -100
WORDS = ("one", "two words", "these are three", "a text of five words", "longer than all of the others before")


def _is_numbers(x: Any) -> bool:
    return isinstance(x, list) and bool(x) and all(isinstance(v, (int, float)) for v in x)


def _name(path: Iterable[Any]) -> str:
    return ".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path).lower()


class Drawn:
    """The values of a leaf, by record and version. ranges: for each leaf, the end `high` of its indices [0, high)."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.ranges: dict[str, int] = {}
        self.floats = "normal"
        self.lowest = 0
        self.ignored = IGNORED
        self.ignoring: set[str] = set()  # leaves in which some values are `ignored`
        self._known: dict[tuple[object, ...], torch.Tensor] = {}

    def length(self, i: int, version: int, longest: int) -> int:
        """The length without padding; the first record is the longest."""
        if longest < 2:
            return longest
        return longest - (i + version) % self.count % min(longest, 4)

    def __call__(self, leaf: str, shape: Sequence[int], dtype: torch.dtype, i: int, version: int) -> torch.Tensor:
        key = (leaf, tuple(shape), dtype, i, version, self.count, self.ranges.get(leaf), self.floats, self.lowest,
               leaf in self.ignoring)
        if key not in self._known:
            self._known[key] = self.draw(leaf, shape, dtype, i, version)
        return self._known[key].clone()

    def draw(self, leaf: str, shape: Sequence[int], dtype: torch.dtype, i: int, version: int) -> torch.Tensor:
        shape = tuple(shape)
        seed = hash((i, version, tuple(map(ord, leaf)), shape)) & 0x7FFFFFFF
        g = torch.Generator().manual_seed(seed)
        used = self.length(i, version, shape[0]) if shape else 0
        tail = torch.arange(shape[0]).view(-1, *[1] * (len(shape) - 1)) >= used if shape else torch.tensor(False)
        if "mask" in leaf and shape:
            keep = tail if "padding" in leaf else ~tail
            return keep.expand(shape).to(dtype).clone()
        if dtype == torch.bool:
            # Every record has both values: a row that masks everything has no defined output.
            return (tail & (torch.arange(shape[0]).view_as(tail) > 0)).expand(shape).clone() if shape else \
                torch.tensor(bool((i + version) % 2))
        if dtype.is_floating_point or dtype.is_complex:
            size = (1.0, 0.3, 2.0)[i % 3] * (6.0 if version else 1.0)
            if self.floats == "unit":
                return torch.rand(shape, generator=g, dtype=torch.float64).to(dtype)
            x = torch.randn(shape, generator=g, dtype=torch.float64)
            return (size * x).to(dtype)
        if "len" in leaf and not shape:
            return torch.tensor(max(1, self.length(i, version, self.ranges.get(leaf, 2))), dtype=dtype)
        high = max(self.lowest + 2, min(self.ranges.get(leaf, 2), torch.iinfo(dtype).max))
        x = torch.randint(self.lowest, high, shape, generator=g)
        if not shape and high <= self.count:
            x = torch.tensor(self.lowest + (i + version) % (high - self.lowest))
        if leaf in self.ignoring and dtype == torch.long:
            missing = tail if shape and shape[0] > 1 else torch.tensor((i + version) % 2 == 1)
            return x.masked_fill(missing, self.ignored)
        return x.masked_fill(tail.expand(shape), self.lowest).to(dtype) if shape else x.to(dtype)


class Records:
    """Makes the module's arguments for any set of synthetic records: of(numbers, versions) → (args, kwargs)."""

    def __init__(self, module: nn.Module, loader: DataLoader[Any], example: Any) -> None:
        self.module, self.loader = module, loader
        self.given = example is not None
        self.drawn = Drawn(COUNTS[0])
        self.cast: torch.dtype | None = None
        self.way = 0
        self.vary = True
        if self.given:
            self.rows = call_of(module, example)
            self.from_rows = True
        else:
            self.from_rows = False
        leaves = tree_leaves(self.rows if self.given else self.template)
        self._choose_count(module, leaves)
        if self.given:
            self._check_example(leaves)

    def _choose_count(self, module: nn.Module, leaves: list[Any]) -> None:
        dims = {size for x in leaves if hasattr(x, "shape") for size in (x.shape[1:] if self.given else x.shape)}
        dims |= {len(x) for x in leaves if _is_numbers(x)} | {size for p in module.parameters() for size in p.shape}
        self.count = next((n for n in COUNTS if n not in dims), COUNTS[0])
        self.drawn.count = self.count

    # ---------------------------------------------------------------- example_inputs

    def _check_example(self, leaves: list[Any]) -> None:
        tensors = [x for x in leaves if isinstance(x, torch.Tensor) and x.dim() > 0]
        self.held = len(tensors[0]) if tensors else 0
        if self.held < 3:
            refuse(f"example_inputs has {self.held} records, but the self-check needs at least 3; pass example_inputs=(…), the "
                   "module's arguments, with the records in the first dimension")
        if not any(x.is_floating_point() for x in tensors) and all(
                bool((x == x[:1]).all()) for x in tensors if len(x) == self.held):
            refuse("the records of example_inputs are all equal, so the self-check cannot see whether one changes another; "
                   "pass different records")

    def _row(self, leaf: str, x: Any, numbers: Sequence[int], versions: Sequence[int]) -> Any:
        if not isinstance(x, torch.Tensor) or x.dim() == 0 or len(x) != self.held:
            return x
        shifted = [(i + v * (1 + self.held // 2)) % self.held for i, v in zip(numbers, versions)]
        if self.given and (not x.is_floating_point() or self.drawn.floats == "given" or "mask" in leaf):
            return x[shifted].clone()
        if not numbers:
            return x[:0].clone()
        return torch.stack([self.drawn(leaf, x.shape[1:], x.dtype, i, v) for i, v in zip(numbers, versions)])

    # ---------------------------------------------------------------- records of the data set's shape

    def _leaf(self, leaf: str, x: Any, i: int, version: int) -> Any:
        if isinstance(x, torch.Tensor):
            return self.drawn(leaf, self._shape(x.shape, i), x.dtype, i, version)
        if type(x).__module__ == "numpy" and hasattr(x, "shape"):
            made = self.drawn(leaf, self._shape(x.shape, i), _torch_type(x), i, version).numpy()
            return made.astype(x.dtype) if made.ndim else x.dtype.type(made)
        if _is_numbers(x):
            kind = torch.long if all(isinstance(v, int) for v in x) else torch.float64
            return self.drawn(leaf, self._shape((len(x),), i), kind, i, version).tolist()
        if isinstance(x, bool) or x is None:
            return x
        if isinstance(x, int):
            return int(self.drawn(leaf, (), torch.long, i, version))
        if isinstance(x, float):
            return float(self.drawn(leaf, (), torch.float64, i, version))
        if isinstance(x, str):
            return WORDS[(i + version) % len(WORDS)]
        raise TypeError(f"a record contains a {type(x).__name__}, for which the self-check has no synthetic value")

    @functools.cached_property
    def template(self) -> Any:
        return self.loader.dataset[0]

    @functools.cached_property
    def _flat(self) -> tuple[list[tuple[str, Any]], Any]:
        found, spec = tree_flatten_with_path(self.template, is_leaf=_is_numbers)
        return [(_name(path), x) for path, x in found], spec

    def _shape(self, shape: Sequence[int], i: int) -> tuple[int, ...]:
        shape = tuple(shape)
        if self.vary and shape and shape[0] == self.longest and self.longest > 2:
            return (self.drawn.length(i, 0, self.longest), *shape[1:])
        return shape

    @functools.cached_property
    def longest(self) -> int:
        for x in tree_leaves(self.template, is_leaf=_is_numbers):
            if _is_numbers(x):
                return len(x)
            if getattr(x, "shape", ()):
                return int(x.shape[0])
        return 0

    def leaves(self) -> list[tuple[str, Any]]:
        tree = self.rows if self.from_rows else self.template
        return [(_name(path), x) for path, x in tree_flatten_with_path(tree, is_leaf=_is_numbers)[0]]

    def index_leaves(self) -> dict[str, bool]:
        """The leaves of the data set's records that are indices, and whether each of them is a single number per record."""
        found = tree_flatten_with_path(self.template, is_leaf=_is_numbers)[0]
        return {_name(path): _length_of(x) < 2 for path, x in found if _is_index(x) and "mask" not in _name(path)}

    def record(self, i: int, version: int) -> Any:
        leaves, spec = self._flat
        with _disable_current_modes():  # records keep different values even inside a mode that makes every random number equal
            return tree_unflatten([self._leaf(name, x, i, version) for name, x in leaves], spec)

    def whole(self, numbers: Sequence[int], versions: Sequence[int] | None = None) -> Any:
        """The batch as the loader returns it."""
        versions = versions or [0] * len(numbers)
        return self.loader.collate_fn([self.record(i, v) for i, v in zip(numbers, versions)])

    def take_rows(self) -> None:
        """For a collate function that rejects synthetic records: uses rows that have the shapes of what it makes from real
        records."""
        count = min(3, len(self.loader.dataset))  # type: ignore[arg-type]  # check_loader has seen that it has a length
        batch = self.loader.collate_fn([self.loader.dataset[i] for i in range(count)])
        self.rows = calls_of(self.module, batch)[0]
        self.from_rows, self.held = True, count
        if not any(isinstance(x, torch.Tensor) and x.dim() and len(x) == count for x in tree_leaves(self.rows)):
            refuse("the self-check found no tensor of the data set with one row per record; pass example_inputs=(…), the "
                   "module's arguments for at least 3 records")

    # ---------------------------------------------------------------- values with which the module can be called

    def settle(self, call: Callable[..., bool], sizes: list[int], dtype: torch.dtype) -> None:
        """Finds how to call the module. call: (numbers, versions) → whether no output is NaN; it may raise.
        sizes: the sizes of embedding tables. dtype: the type of the parameters."""
        first: Exception | str | None = None
        ways = [(True, False)] if self.given else [(False, True), (False, False), (True, False)]
        for self.from_rows, self.vary in ways:
            if self.from_rows and not self.given:
                self.take_rows()
            try:
                self.of([0, 1])
            except Error:
                raise
            except CANNOT_CALL as error:  # the collate function fails, whatever the values
                first = first or error
                continue
            for self.drawn.floats, self.drawn.lowest in [("normal", 0), ("unit", 0), ("normal", 1), ("unit", 1), ("given", 0)]:
                if self.drawn.floats == "given" and not self.given:
                    continue
                for self.cast in (None, dtype):
                    count = 1 if self.from_rows else 3
                    for self.way in range(count):
                        try:
                            if self._works(call):
                                self._widen(call, sizes)
                                return
                            first = first or "its outputs contain NaN"
                        except Error:
                            raise
                        except CANNOT_CALL as error:
                            first = first or error
        refuse(f"the self-check could not call the module with records of the data set's shapes and types ({first}); pass "
               "example_inputs=(…), the module's arguments for at least 3 records")

    def _works(self, call: Callable[..., bool]) -> bool:
        # The second record may be shorter; then the module must accept both lengths.
        return call([0, 1]) and (not self.vary or call([1]))

    def _works_for_all(self, call: Callable[..., bool]) -> bool:
        """Whether the module can be called with every record that the check uses, in both versions."""
        everybody = list(range(self.count))
        return self._works(call) and all(call(everybody, [version] * self.count) for version in (0, 1))

    def _widen(self, call: Callable[..., bool], sizes: list[int]) -> None:
        """Uses larger indices, and indices that a loss ignores, where the module accepts them. Besides the sizes of tables, it
        tries the dimensions of the inputs, which bound indices that are lengths."""
        if self.given:
            return
        leaves = [leaf for leaf, x in self.leaves() if "mask" not in leaf and _is_index(x)]
        dims = {size for _, x in self.leaves() for size in (getattr(x, "shape", None) or ([len(x)] if _is_numbers(x) else []))}
        sizes = sorted({*sizes, *dims, *(size + 1 for size in dims)}, reverse=True)
        for tried in [leaves, *([leaf] for leaf in leaves)] if len(leaves) > 1 else [leaves]:
            for size in sizes:
                before = dict(self.drawn.ranges)
                self.drawn.ranges.update(dict.fromkeys(tried, size))
                try:
                    if self._works_for_all(call):
                        break
                except Error:
                    raise
                except CANNOT_CALL:
                    pass
                self.drawn.ranges = before
            else:
                continue
            if tried is leaves:
                break
        for leaf in leaves:
            self.drawn.ignoring.add(leaf)
            try:
                # A record all of whose labels are ignored may have a NaN loss when it is alone.
                if call([0, 1]) and call(list(range(self.count))):
                    for i in range(self.count):
                        call([i])
                    continue
            except Error:
                raise
            except CANNOT_CALL:
                pass
            self.drawn.ignoring.discard(leaf)

    def of(self, numbers: Sequence[int], versions: Sequence[int] | None = None) -> Call:
        versions = versions or [0] * len(numbers)
        if self.from_rows:
            found, spec = tree_flatten_with_path(self.rows)
            with _disable_current_modes():
                call: Call = tree_unflatten([self._row(_name(path), x, numbers, versions) for path, x in found], spec)
        else:
            ways = calls_of(self.module, self.whole(numbers, versions))
            call = ways[min(self.way, len(ways) - 1)]
        if self.cast is not None:
            call = tree_map(lambda x: x.to(self.cast) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, call)
        return call


def _torch_type(x: Any) -> torch.dtype:
    kind = x.dtype.kind
    return torch.bool if kind == "b" else torch.float64 if kind == "f" else torch.long


def call_of(module: nn.Module, inputs: Any) -> Call:
    """(args, kwargs) from the module's inputs: a dictionary of arguments, a sequence of arguments, or one argument."""
    if isinstance(inputs, Mapping):
        takes = inspect.signature(module.forward).parameters
        anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes.values())
        return (), {key: x for key, x in inputs.items() if anything or key in takes}
    return (tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)), {}


def calls_of(module: nn.Module, batch: Any) -> list[Call]:
    """The ways in which a training loop may call the module with a batch: with its first part, as for (inputs, targets), with
    all parts but the last, or with all parts."""
    if not isinstance(batch, (list, tuple)) or not batch:
        return [call_of(module, batch)]
    return [call_of(module, batch[0]), *(call_of(module, batch[:end]) for end in (len(batch) - 1, len(batch)) if end > 1)]


def _length_of(x: Any) -> int:
    """The length of the first dimension; 0 for a single number."""
    shape = getattr(x, "shape", (len(x),) if _is_numbers(x) else ())
    return shape[0] if shape else 0


def _is_index(x: Any) -> bool:
    if isinstance(x, torch.Tensor):
        return not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool
    if type(x).__module__ == "numpy" and hasattr(x, "dtype"):
        return x.dtype.kind in "iu"
    return _is_numbers(x) and isinstance(x[0], int) or isinstance(x, int) and not isinstance(x, bool)
