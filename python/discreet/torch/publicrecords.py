"""Records that the self-check makes up: of the shapes and types of the data set's, or of `example_inputs`, and of no values.

A record is known by its number and its version, so that it can be alone, with others, left out, or replaced. Where the loader
has a collate function, records pass through it; lengths differ if it pads. Whatever is named a mask has ones up to a length
that differs from record to record; other sequences of indices end in zeros from there on, or in -100 where the module takes
it. Of indices that are one number a record, those of every other record are then -100.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_map, tree_unflatten

from discreet.torch.errors import refuse

CANNOT_CALL = (TypeError, RuntimeError, LookupError, ValueError, AttributeError, NotImplementedError, AssertionError)
COUNTS = (5, 7, 11, 13, 17, 19, 23)  # of records: the first that is no other dimension
IGNORED = -100
WORDS = ("one", "two words", "these are three", "a text of five words", "longer than all of the others before")


def _is_numbers(x) -> bool:
    return isinstance(x, list) and bool(x) and all(isinstance(v, (int, float)) for v in x)


def _name(path) -> str:
    return ".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path).lower()


class Drawn:
    """Values of one leaf, by record and version. ranges: by leaf, the indices [0, high)."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.ranges: dict[str, int] = {}
        self.floats = "normal"
        self.lowest = 0
        self.ignored = IGNORED
        self.ignoring: set[str] = set()  # leaves of which some values are `ignored`
        self._known: dict[tuple, torch.Tensor] = {}

    def length(self, i: int, version: int, longest: int) -> int:
        """Of what is not padding: the first record is the longest."""
        if longest < 2:
            return longest
        return longest - (i + version) % self.count % min(longest, 4)

    def __call__(self, leaf: str, shape, dtype: torch.dtype, i: int, version: int) -> torch.Tensor:
        key = (leaf, tuple(shape), dtype, i, version, self.count, self.ranges.get(leaf), self.floats, self.lowest,
               leaf in self.ignoring)
        if key not in self._known:
            self._known[key] = self.draw(leaf, shape, dtype, i, version)
        return self._known[key].clone()

    def draw(self, leaf: str, shape, dtype: torch.dtype, i: int, version: int) -> torch.Tensor:
        shape = tuple(shape)
        seed = hash((i, version, tuple(map(ord, leaf)), shape)) & 0x7FFFFFFF
        g = torch.Generator().manual_seed(seed)
        used = self.length(i, version, shape[0]) if shape else 0
        tail = torch.arange(shape[0]).view(-1, *[1] * (len(shape) - 1)) >= used if shape else torch.tensor(False)
        if "mask" in leaf and shape:
            keep = tail if "padding" in leaf else ~tail
            return keep.expand(shape).to(dtype).clone()
        if dtype == torch.bool:
            # One kind of each in every record: a row that masks everything has no value.
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
    """of(numbers, versions) → the module's (args, kwargs)."""

    def __init__(self, module, loader, example) -> None:
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

    def _choose_count(self, module, leaves) -> None:
        dims = {size for x in leaves if hasattr(x, "shape") for size in (x.shape[1:] if self.given else x.shape)}
        dims |= {len(x) for x in leaves if _is_numbers(x)} | {size for p in module.parameters() for size in p.shape}
        self.count = next((n for n in COUNTS if n not in dims), COUNTS[0])
        self.drawn.count = self.count

    # ---------------------------------------------------------------- example_inputs

    def _check_example(self, leaves) -> None:
        tensors = [x for x in leaves if isinstance(x, torch.Tensor) and x.dim() > 0]
        self.held = len(tensors[0]) if tensors else 0
        if self.held < 3:
            refuse("the self-check needs inputs of 3 records or more; give example_inputs=(…), the module's arguments, with the "
                   "records in the first dimension")
        if not any(x.is_floating_point() for x in tensors) and all(
                bool((x == x[:1]).all()) for x in tensors if len(x) == self.held):
            refuse("the records of example_inputs are all the same: whether one changes another cannot be seen; give different "
                   "ones")

    def _row(self, leaf: str, x, numbers, versions):
        if not isinstance(x, torch.Tensor) or x.dim() == 0 or len(x) != self.held:
            return x
        shifted = [(i + v * (1 + self.held // 2)) % self.held for i, v in zip(numbers, versions)]
        if self.given and (not x.is_floating_point() or self.drawn.floats == "given" or "mask" in leaf):
            return x[shifted].clone()
        if not numbers:
            return x[:0].clone()
        return torch.stack([self.drawn(leaf, x.shape[1:], x.dtype, i, v) for i, v in zip(numbers, versions)])

    # ---------------------------------------------------------------- records of the data set's shape

    def _leaf(self, leaf: str, x, i: int, version: int):
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
        raise TypeError(f"a record holds a {type(x).__name__}, for which no public value is known")

    @functools.cached_property
    def template(self):
        return self.loader.dataset[0]

    @functools.cached_property
    def _flat(self):
        found, spec = tree_flatten_with_path(self.template, is_leaf=_is_numbers)
        return [(_name(path), x) for path, x in found], spec

    def _shape(self, shape, i: int):
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
                return x.shape[0]
        return 0

    def leaves(self) -> list[tuple[str, object]]:
        tree = self.rows if self.from_rows else self.template
        return [(_name(path), x) for path, x in tree_flatten_with_path(tree, is_leaf=_is_numbers)[0]]

    def index_leaves(self) -> dict[str, bool]:
        """Of the data set's records: leaves of indices, and whether each is one number a record."""
        found = tree_flatten_with_path(self.template, is_leaf=_is_numbers)[0]
        return {_name(path): _length_of(x) < 2 for path, x in found if _is_index(x) and "mask" not in _name(path)}

    def record(self, i: int, version: int):
        leaves, spec = self._flat
        with _disable_current_modes():  # values differ between records where a collate function draws one number
            return tree_unflatten([self._leaf(name, x, i, version) for name, x in leaves], spec)

    def whole(self, numbers, versions=None):
        """The batch as the loader gives it."""
        versions = versions or [0] * len(numbers)
        return self.loader.collate_fn([self.record(i, v) for i, v in zip(numbers, versions)])

    def take_rows(self) -> None:
        """Where the collate function rejects records that were made up: rows of the shape of what it makes of real ones."""
        count = min(3, len(self.loader.dataset))
        batch = self.loader.collate_fn([self.loader.dataset[i] for i in range(count)])
        self.rows = calls_of(self.module, batch)[0]
        self.from_rows, self.held = True, count
        if not any(isinstance(x, torch.Tensor) and x.dim() and len(x) == count for x in tree_leaves(self.rows)):
            refuse("the self-check found no records in what the data set gives; give example_inputs=(…), the module's "
                   "arguments for 3 records or more")

    # ---------------------------------------------------------------- values with which the module can be called

    def settle(self, call, sizes: list[int], dtype: torch.dtype) -> None:
        """Finds how to call the module. call: (numbers, versions) → whether all that it returns is a number; it may raise.
        sizes: of tables. dtype: of parameters."""
        first = None
        for self.from_rows, self.vary in [(True, False)] if self.given else [(False, True), (False, False), (True, False)]:
            if self.from_rows and not self.given:
                self.take_rows()
            try:
                self.of([0, 1])
            except CANNOT_CALL as error:  # of the collate function, whatever the values
                first = first or error
                continue
            for self.drawn.floats, self.drawn.lowest in [("normal", 0), ("unit", 0), ("normal", 1), ("unit", 1), ("given", 0)]:
                if self.drawn.floats == "given" and not self.given:
                    continue
                for self.cast in (None, dtype):
                    for self.way in range(1 if self.from_rows else 3):
                        try:
                            if self._works(call):
                                self._widen(call, sizes)
                                return
                            first = first or "its outputs are not numbers"
                        except CANNOT_CALL as error:
                            first = first or error
        refuse(f"the self-check could not call the module with records of the data set's shapes and types ({first}); give "
               "example_inputs=(…), the module's arguments for 3 records or more")

    def _works(self, call) -> bool:
        # The second record may be shorter: then the module must take both lengths.
        return call([0, 1]) and (not self.vary or call([1]))

    def _works_for_all(self, call) -> bool:
        """With every record that the check will make up, of both versions."""
        everybody = list(range(self.count))
        return self._works(call) and all(call(everybody, [version] * self.count) for version in (0, 1))

    def _widen(self, call, sizes: list[int]) -> None:
        """Larger indices, and ones that a loss ignores, where the module takes them. Lengths reach the sizes of inputs."""
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
                # A record whose every label is ignored may have a loss that is not a number when it is alone.
                if call([0, 1]) and call(list(range(self.count))):
                    for i in range(self.count):
                        call([i])
                    continue
            except CANNOT_CALL:
                pass
            self.drawn.ignoring.discard(leaf)

    def of(self, numbers, versions=None):
        versions = versions or [0] * len(numbers)
        if self.from_rows:
            found, spec = tree_flatten_with_path(self.rows)
            with _disable_current_modes():
                call = tree_unflatten([self._row(_name(path), x, numbers, versions) for path, x in found], spec)
        else:
            ways = calls_of(self.module, self.whole(numbers, versions))
            call = ways[min(self.way, len(ways) - 1)]
        if self.cast is None:
            return call
        return tree_map(lambda x: x.to(self.cast) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, call)


def _torch_type(x) -> torch.dtype:
    kind = x.dtype.kind
    return torch.bool if kind == "b" else torch.float64 if kind == "f" else torch.long


def call_of(module, inputs) -> tuple[tuple, dict]:
    """(args, kwargs) of the module's inputs: a dictionary of arguments, several of them, or one."""
    if isinstance(inputs, Mapping):
        takes = inspect.signature(module.forward).parameters
        anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes.values())
        return (), {key: x for key, x in inputs.items() if anything or key in takes}
    return (tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)), {}


def calls_of(module, batch) -> list[tuple[tuple, dict]]:
    """The ways in which a loop may call the module with a batch: with its first part, as of (inputs, targets), with all but
    the last, or with all of it."""
    if not isinstance(batch, (list, tuple)) or not batch:
        return [call_of(module, batch)]
    return [call_of(module, batch[0]), *(call_of(module, batch[:end]) for end in (len(batch) - 1, len(batch)) if end > 1)]


def _length_of(x) -> int:
    """Of the first dimension; 0 of one number."""
    shape = getattr(x, "shape", (len(x),) if _is_numbers(x) else ())
    return shape[0] if shape else 0


def _is_index(x) -> bool:
    if isinstance(x, torch.Tensor):
        return not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool
    if type(x).__module__ == "numpy" and hasattr(x, "dtype"):
        return x.dtype.kind in "iu"
    return _is_numbers(x) and isinstance(x[0], int) or isinstance(x, int) and not isinstance(x, bool)
