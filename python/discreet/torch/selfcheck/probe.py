"""Passes of the self-check over copies of a module: ordinary passes, and passes through the clipper."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from discreet.errors import Error
from discreet.torch import rows
from discreet.torch.clipper import HALF_CHARGE, Clipper, shapes_of
from discreet.torch.errors import refusal, refuse
from discreet.torch.layers import steady_gradients
from discreet.torch.selfcheck import criterion as losses
from discreet.torch.selfcheck import draws, memory
from discreet.torch.selfcheck.outputs import Floats, Place, floats_of, loss_of
from discreet.torch.selfcheck.passes import FixedScales, Outcome, Rows, Twice, Watch, copied, same_tree
from discreet.torch.selfcheck.public_records import CANNOT_CALL, Records
from discreet.torch.selfcheck.twins import Twins, copy_of

MOST = 512  # maximum number of records of a batch as large as the loader's


class Unattributed(Exception):
    """The rows of each record cannot be determined in these layers. error: raised if no module above them can run record by
    record."""

    def __init__(self, layers: Sequence[str], error: Error) -> None:
        super().__init__(str(error))
        self.layers, self.error = layers, error


def in_training(module: nn.Module) -> nn.Module:
    """Sets training mode, except for normalisations that are frozen with their statistics."""
    frozen = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and not m.training]
    module.train()
    for one in frozen:
        one.eval()
    return module


def batches_like(loader: DataLoader[Any], most: int | None, numbers: list[int]) -> list[list[int]]:
    """For (e): the records of a batch as large as the loader's on average, and of a slightly larger one that is nearly all one
    record. Empty if `numbers` is at least as large. most: maximum number of records of a piece."""
    dataset: Any = loader.dataset
    largest = min(most or len(dataset), len(dataset), MOST)
    size = min(loader.batch_size or 1, largest)
    if size <= len(numbers):
        return []
    other = min(size + math.ceil(2 * math.sqrt(size)), largest)
    other = size - 1 if other == size else other
    return [(numbers * size)[:size], [0] * (other - len(numbers)) + numbers]


class Probe:
    """Calls copies of the module with synthetic records, and reports what each layer saw."""

    places: list[Place]  # of the outputs
    shapes: list[list[torch.Size]]  # by record, of its outputs alone
    scalars: dict[int, str]  # reductions of scalar outputs
    rows: dict[str, Any]  # by layer, how its rows belong to records

    def __init__(self, module: nn.Module, data_loader: DataLoader[Any], example_inputs: Any, reduction: str,
                 criterion: Callable[[Any, Any], torch.Tensor] | None, most: int | None) -> None:
        self.reduction, self.criterion = reduction, criterion
        if criterion is not None:
            losses.check_reduction(criterion, reduction)
        self.original = module
        self.serve(frozenset())
        self.held = memory.fingerprint(module)
        self.module = in_training(copy_of(module))
        steady_gradients(self.module)
        self.parameters = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        self.twins = Twins(self.module)
        self.dtype = next(iter(self.parameters.values())).dtype
        self.records = Records(self.module, data_loader, example_inputs)
        self.numbers = list(range(self.records.count))
        self.replaced = self.records.count // 2
        self.versions = [int(i == self.replaced) for i in self.numbers]
        self.many = batches_like(data_loader, most, self.numbers)
        self.watched = self.drawn = self.chosen = False
        self.called: list[Any] = []
        self.looped: frozenset[str] = frozenset()

    def serve(self, whole: frozenset[str]) -> None:
        """Creates the sites. whole: modules that run record by record. Rejects unsupported layers."""
        served = Clipper(self.original, {name: 0 for name, _ in self.original.named_parameters()}, whole=whole).remove()
        self.sites, self.whole = {site.name: site for site in served.sites}, whole

    def serve_above(self, found: Unattributed) -> None:
        """Makes the modules above these layers run record by record, so that each row belongs to the current record."""
        whole = set(self.whole)
        for name in found.layers:
            if name == "":
                raise found.error
            above = name.rpartition(".")[0]
            while isinstance(self.module.get_submodule(above), (nn.ModuleList, nn.ModuleDict)) and above:
                above = above.rpartition(".")[0]
            whole.add(above)
        self.serve(frozenset(one for one in whole if not any(
            one != other and (other == "" or one.startswith(other + ".")) for other in whole)))

    # ---------------------------------------------------------------- passes

    def quiet(self) -> draws.OneNumber | draws.NoneDrawn:
        """A mode in which a record draws the same numbers in every batch."""
        return draws.NoneDrawn() if self.watched and not self.drawn else draws.OneNumber()

    def again_if_drawn(self, judge: Callable[[], None]) -> None:
        try:
            judge()
        except draws.Drew:
            self.drawn = True
            judge()

    def call(self, numbers: Sequence[int], versions: Sequence[int] | None = None) -> bool:
        """True if no output for these records is NaN; inputs of earlier calls are not evaluated again."""
        with torch.no_grad(), self.quiet() as mode:
            mode.begin(1)
            try:
                inputs = self.records.of(numbers, versions)
                if any(same_tree(inputs, other) for other in self.called):
                    return True
                twin = self.twins.new()
                outputs = floats_of(twin(*tree_map(copied, inputs[0]), **tree_map(copied, inputs[1])))
                mode.end()
            except draws.Drew:
                self.drawn = True
                return self.call(numbers, versions)
        self.drawn |= mode.drawn
        self.watched = True
        self.twins.give_back(twin)
        if any(y.isnan().any() for _, y in outputs):
            return False
        self.called.append(inputs)
        return True

    def plain(self, numbers: Sequence[int], gradient: bool = False, versions: Sequence[int] | None = None) -> tuple[
            Floats, dict[str, list[Rows]], list[torch.Size]]:
        """The outputs of an ordinary pass, the rows that each layer saw, and the shapes of the inputs."""
        twin = self.twins.new()
        seen: dict[str, list[Rows]] = {}
        hooks = [twin.get_submodule(name).register_forward_pre_hook(Watch(site, seen.setdefault(name, [])), with_kwargs=True)
                 for name, site in self.sites.items()]
        with self.quiet() as mode, torch.set_grad_enabled(gradient):
            mode.begin(1)
            args, kwargs = self.records.of(numbers, versions)
            mode.end()
            mode.begin(1)
            try:
                outputs = floats_of(twin(*args, **kwargs))
                mode.end()
            except Error:
                raise
            except CANNOT_CALL as error:
                if len(numbers) > 1:
                    refuse(f"self-check: the module cannot be called with {len(numbers)} records of the data set's shapes and "
                           f"types ({error}); pass example_inputs=(…), the module's arguments for at least 3 records")
                refuse(f"self-check: the module cannot be called with one record alone ({error}); check whether it mixes the "
                       "records of a batch, as batch normalisation does")
        for hook in hooks:
            hook.remove()
        self.twins.give_back(twin)
        self.drawn |= mode.drawn
        self.chosen |= mode.chosen
        return outputs, seen, shapes_of((args, kwargs))

    @contextlib.contextmanager
    def clipper(self) -> Iterator[Clipper]:
        """The clipper of a module in its initial state."""
        twin = self.twins.new()
        clipper = Clipper(twin, dict.fromkeys(self.parameters, 0), mean=False, whole=self.whole)
        clipper.learn(self.rows, self.looped)
        try:
            yield clipper
        finally:
            clipper.remove()
        self.twins.give_back(twin)

    def twice(self, versions: Sequence[int] | None = None, quiet: bool = False) -> Twice:
        with self.clipper() as clipper:
            first = self.clipped(clipper, self.numbers, versions, quiet)
            held = memory.fingerprint(clipper.module)
            return Twice(first, held, self.clipped(clipper, self.numbers, seed=3))

    def clipped(self, clipper: Clipper, numbers: Sequence[int], versions: Sequence[int] | None = None, quiet: bool = False,
                seed: int = 2) -> Outcome:
        clipper.drop()
        sink = FixedScales(torch.tensor([self.scale(i) for i in numbers], dtype=torch.float64))
        clipper.sink = sink
        clipper.begin(len(numbers))
        drawing: Any = self.quiet() if quiet else draws.AsDrawn()
        try:
            with drawing as mode:
                mode.begin(seed)
                args, kwargs = self.records.of(numbers, versions)
                mode.end()
                mode.begin(seed)
                try:
                    outputs = floats_of(clipper.module(*args, **kwargs))
                except Error:
                    raise
                except CANNOT_CALL as error:
                    raise self.because_shared(error) or error from error
                loss_of(outputs, self.places, self.shapes, numbers, self.scalars).backward()
                mode.end()
            if sink.norms is None:
                refuse("self-check: no gradient reached a layer whose gradients are clipped; parameters are used directly, for "
                       "instance by torch.nn.functional. Call the layers that own them")
            sums = {name: clipper.buffers[name] if name in clipper.buffers else torch.zeros(p.numel(), dtype=torch.float64)
                    for name, p in self.parameters.items()}
            norms = sink.norms[:, 0] / (HALF_CHARGE if clipper.half else 1.0)
            state = memory.fingerprint_of_tensors(clipper.module.state_dict()) if quiet else {}
            return Outcome([(path, y.detach()) for path, y in outputs], norms, sums, state)
        except Error as error:
            if clipper.outside:
                raise Unattributed([clipper.outside.rpartition(".")[0]], error) from error
            if clipper.unbatched is not None:
                self.looped |= {clipper.unbatched}
                raise Unattributed([], error) from error
            raise

    def because_shared(self, error: Exception) -> Unattributed | None:
        """A layer with a shared input gets it once per record, which the rest of the module may not expect."""
        layouts = {name: self.rows.get(name, []) for name in self.sites}
        shared = [name for name, layout in layouts.items() if layout is rows.BROADCAST or isinstance(layout, list) and not any(
            isinstance(one, rows.RowsPerRecord) for one in layout)]
        return Unattributed(shared, refusal(
            f"self-check: {', '.join(shared)}: all records share the input of these layers, so they run once per record, and "
            f"the module cannot use their outputs ({error}). Freeze them with requires_grad_(False), or train adapters (LoRA) "
            "of other layers")) if shared else None

    def scale(self, i: int) -> float:
        return 0.0 if i == self.replaced else 1 / (1 + i)
