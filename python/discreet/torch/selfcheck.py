"""The check before a run: that no record changes what others contribute, and that the module remembers none.

It works on copies of the module (twins.py), in its own precision and in training mode, and again in eval mode if parts of it
were given so, with records that it makes up (publicrecords.py). What the collate function makes of each record must not depend on the others
(collated.py). Settings of layers are looked at first, at every depth (layers.py). Then, for a batch of a few records,

(a) one record is replaced, shapes equal: the outputs, norms and clipped gradients of all others are unchanged in every bit;
(b) each record is alone, and one is left out: outputs, losses and gradients are those of the batch, up to rounding (TOLERANCE).
    Every random number is then the same one, so that a record draws what it draws in the batch (draws.py);
(c) what the module holds after the pass does not depend on the replaced record (memory.py);
(d) a second pass does not depend on the records of the first.
(e) outputs of forward passes at about the size of the loader's batches, of copies of these records: one is replaced, as in (a)
    and (c); and each is what it is alone, as in (b), in two batches of different sizes, of which one is nearly all one record.

(b) compares with autograd, so that rules of layers are checked too; and it learns how the rows of each layer belong to records
(rows.py). Where that cannot be told of a layer, the smallest module above it that can runs record by record (generic.py), where
each row is of the record that runs; (b) compares it with the ordinary module. A scalar output is judged as a loss.

It does not see: a coupling that shows for other values only (a branch that none of the made-up records takes), with another
chance, at other sizes of a batch, or at larger ones in the backward pass only; memory outside of what memory.py reaches that has no effect on the next pass; what the training loop does with outputs,
but for `criterion`; code that acts differently when it is called another time, or that knows that it is checked.
docs/concepts/pytorch.md lists this, with what would lift it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from typing import NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_map

from discreet.errors import Error
from discreet.torch import criterion as losses
from discreet.torch import collated, draws, memory, rows
from discreet.torch.clipper import HALF_CHARGE, Clipper, shapes_of
from discreet.torch.errors import refusal, refuse
from discreet.torch.generic import GenericSite
from discreet.torch.layers import steady_gradients
from discreet.torch.outputs import SCALAR, SHARED, away, floats_of, loss_of, part, places_of, same
from discreet.torch.passes import FixedScales, Outcome, Twice, Watch, copied, norm_of, same_tree
from discreet.torch.publicrecords import CANNOT_CALL, Records
from discreet.torch.twins import Twins, copy_of

# (b): differences allowed, relative to a parameter's gradient, and to the record's whole gradient. The second is for
# gradients that are 0 but for rounding, as that of an attention's key bias.
TOLERANCE = {torch.float64: (1e-7, 1e-10), torch.float32: (1e-3, 2e-5), torch.bfloat16: (0.1, 0.02), torch.float16: (0.1, 0.02)}
FROZEN_IN_EVAL = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
DRAWS = range(10, 18)  # seeds under which a module that draws random numbers is judged
MOST = 512  # records of (e)
VERSIONS = range(2, 5)  # of records, under which rows are counted again where values choose shapes


def run(module: nn.Module, data_loader, example_inputs=None, *, reduction: str = "mean", criterion=None,
        most: int | None = None) -> Layout:
    """Rejects a module whose records cannot be bounded; else how rows belong to records.
    criterion: the loss, of outputs and targets; scalars among the outputs are then not taken for losses.
    most: records of a piece."""
    with draws.kept(), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a module warns in its own run
        draws.seed(0)
        try:
            check = Check(module, data_loader, example_inputs, reduction, criterion, most)
            check.run()
            check.run_as_given()
        except CANNOT_CALL as error:
            if "use_reentrant" in str(error):
                refuse("checkpoint(use_reentrant=True) begins a backward pass inside another, of which norms would be "
                       "parts; give use_reentrant=False")
            refuse(f"self-check: the module failed in training mode ({type(error).__name__}: {error}). Check that it can be "
                   "called and differentiated for one record, and several times; it must not keep tensors of a pass for the "
                   "next one")
    if check.whole:
        named = ", ".join(sorted(name or "the module" for name in check.whole))
        warnings.warn(f"{named} {'runs' if len(check.whole) == 1 else 'run'} record by record, because layers in it see rows "
                      "that cannot be told apart by records. That is exact, slower, and holds the gradients of its parameters "
                      "for every record of a piece; to avoid it, freeze those layers, or train adapters (LoRA) of others",
                      stacklevel=4)
    return Layout(check.rows, check.whole, check.looped)


class Layout(NamedTuple):
    """rows: by layer, how its rows belong to records (Clipper.learn). whole: modules that run record by record because that
    cannot be told of layers below them. looped: modules whose records run one after the other."""

    rows: dict
    whole: frozenset[str]
    looped: frozenset[str]


class Unattributed(Exception):
    """Which rows of these layers are whose cannot be told. error: what to say if no module above them can run record by
    record."""

    def __init__(self, layers: list[str], error: Error) -> None:
        super().__init__(str(error))
        self.layers, self.error = layers, error


def in_training(module: nn.Module) -> nn.Module:
    """In training mode, but for normalisations that are frozen with their statistics."""
    frozen = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and not m.training]
    module.train()
    for one in frozen:
        one.eval()
    return module


def batches_like(loader, most: int | None, numbers: list[int]) -> list[list[int]]:
    """For (e): records of a batch as large as the loader's on average, and of one that is a bit larger and nearly all one
    record. None if those of `numbers` are as many. most: records of a piece."""
    largest = min(most or len(loader.dataset), len(loader.dataset), MOST)
    size = min(loader.batch_size or 1, largest)
    if size <= len(numbers):
        return []
    other = min(size + math.ceil(2 * math.sqrt(size)), largest)
    other = size - 1 if other == size else other
    return [(numbers * size)[:size], [0] * (other - len(numbers)) + numbers]


class Check:
    def __init__(self, module, data_loader, example_inputs, reduction, criterion, most) -> None:
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
        self.called: list = []
        self.looped: frozenset[str] = frozenset()

    def serve(self, whole: frozenset[str]) -> None:
        """whole: modules that run record by record. Says what cannot be."""
        served = Clipper(self.original, {name: 0 for name, _ in self.original.named_parameters()}, whole=whole).remove()
        self.sites, self.whole = {site.name: site for site in served.sites}, whole

    def serve_above(self, found: Unattributed) -> None:
        """Lets the modules above these layers run record by record, where each row is of the record that runs."""
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
        """A record draws what it draws in any other batch."""
        return draws.NoneDrawn() if self.watched and not self.drawn else draws.OneNumber()

    def again_if_drawn(self, judge) -> None:
        try:
            judge()
        except draws.Drew:
            self.drawn = True
            judge()

    def call(self, numbers, versions=None) -> bool:
        """Whether all outputs for these records are numbers; what it was called with before is known."""
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

    def plain(self, numbers, gradient: bool = False, versions=None):
        """Outputs of an ordinary pass, the rows that each layer saw, and the shapes of the inputs."""
        twin, seen = self.twins.new(), {}
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
            except CANNOT_CALL as error:
                if len(numbers) > 1:
                    refuse(f"self-check: the module cannot be called with {len(numbers)} records of the data set's shapes and "
                           f"types ({error}); give example_inputs=(…), the module's arguments for 3 records or more")
                refuse(f"self-check: the module cannot be called with one record alone ({error}); does it mix the records of a "
                       "batch, as batch normalisation does?")
        for hook in hooks:
            hook.remove()
        self.twins.give_back(twin)
        self.drawn |= mode.drawn
        self.chosen |= mode.chosen
        return outputs, seen, shapes_of((args, kwargs))

    @contextlib.contextmanager
    def clipper(self):
        """Of a module as it was at first."""
        twin = self.twins.new()
        clipper = Clipper(twin, dict.fromkeys(self.parameters, 0), mean=False, whole=self.whole)
        clipper.learn(self.rows, self.looped)
        try:
            yield clipper
        finally:
            clipper.remove()
        self.twins.give_back(twin)

    def twice(self, versions=None, quiet=False) -> Twice:
        with self.clipper() as clipper:
            first = self.clipped(clipper, self.numbers, versions, quiet)
            held = memory.fingerprint(clipper.module)
            return Twice(first, held, self.clipped(clipper, self.numbers, seed=3))

    def clipped(self, clipper, numbers, versions=None, quiet=False, seed=2) -> Outcome:
        clipper.drop()
        clipper.sink = FixedScales(torch.tensor([self.scale(i) for i in numbers], dtype=torch.float64))
        clipper.begin(len(numbers))
        try:
            with self.quiet() if quiet else draws.AsDrawn() as mode:
                mode.begin(seed)
                args, kwargs = self.records.of(numbers, versions)
                mode.end()
                mode.begin(seed)
                try:
                    outputs = floats_of(clipper.module(*args, **kwargs))
                except CANNOT_CALL as error:
                    raise self.because_shared(error) or error
                loss_of(outputs, self.places, self.shapes, numbers, self.scalars).backward()
                mode.end()
            if clipper.sink.norms is None:
                refuse("self-check: no gradient reached a layer whose gradients are clipped; parameters are used directly, as by "
                       "torch.nn.functional. Call the layers that hold them")
            sums = {name: clipper.buffers[name] if name in clipper.buffers else torch.zeros(p.numel(), dtype=torch.float64)
                    for name, p in self.parameters.items()}
            norms = clipper.sink.norms[:, 0] / (HALF_CHARGE if clipper.half else 1.0)
            state = memory.fingerprint_of_tensors(clipper.module.state_dict()) if quiet else {}
            return Outcome([(path, y.detach()) for path, y in outputs], norms, sums, state)
        except Error as error:
            if clipper.outside:
                raise Unattributed([clipper.outside.rpartition(".")[0]], error) from error
            if clipper.unbatched is not None:
                self.looped |= {clipper.unbatched}
                raise Unattributed([], error) from error
            raise

    def because_shared(self, error) -> Unattributed | None:
        """A layer whose input is not a record's is given it once a record, which what follows may not expect."""
        layouts = {name: self.rows.get(name, []) for name in self.sites}
        shared = [name for name, layout in layouts.items() if layout is rows.BROADCAST or isinstance(layout, list) and not any(
            isinstance(one, rows.RowsPerRecord) for one in layout)]
        return Unattributed(shared, refusal(
            f"self-check: {', '.join(shared)}: all records share the input of these layers, so that they are run once a "
            f"record, and the module does not take what they return ({error}). Freeze them with requires_grad_(False), or "
            "train adapters (LoRA) of other layers")) if shared else None

    # ---------------------------------------------------------------- the check

    def run(self) -> None:
        tables = (nn.Embedding, nn.EmbeddingBag)
        sizes = {m.num_embeddings for m in self.module.modules() if isinstance(m, tables)}
        before = memory.fingerprint_of_tensors(dict(self.module.named_parameters()))
        self.records.settle(self.call, sorted(sizes, reverse=True), self.dtype)
        after = memory.fingerprint_of_tensors(dict(self.module.named_parameters()))
        self.judge_state(before, after, "the records that the module sees")
        collated.check(self.records, self.numbers, self.replaced)
        first: Error | None = None
        while True:
            try:
                self.again_if_drawn(self.judge)
                break
            except Unattributed as found:
                first = first or found.error
                self.serve_above(found)
            except CANNOT_CALL:  # what a module returns of one record does not fit where it was expected
                if not self.whole or first is None:
                    raise
                self.serve_above(Unattributed(list(self.whole), first))
        self.again_if_drawn(self.judge_many)
        self.judge_outside()
        if self.criterion is not None:
            self.judge_criterion()

    def judge(self) -> None:
        self.learn()
        left = self.numbers[1:]
        first = self.twice(quiet=True)
        with self.clipper() as clipper:
            fewer = self.clipped(clipper, left, quiet=True)
        self.judge_gradients(first.first, self.numbers)
        self.judge_gradients(fewer, left)
        self.judge_outputs()
        self.judge_replaced(None if self.drawn else first)
        self.judge_state(first.first.state, fewer.state, "the number of records in a batch")

    def run_as_given(self) -> None:
        """(a), (c) and (d) again in the mode in which the module was given, where that is another one."""
        modes = [(ours, given.training) for ours, given in zip(self.module.modules(), self.original.modules())
                 if ours.training != given.training and not isinstance(given, FROZEN_IN_EVAL)]
        if not modes:
            return
        for ours, training in modes:
            ours.training = training
        self.twins.forget()
        learned = self.rows
        try:
            self.again_if_drawn(self.judge_as_given)
        except (Error, Unattributed) as error:
            error = getattr(error, "error", error)
            refuse(f"in eval mode, in which parts of the module were given: {error.sentence}. If you train in training mode, call "
                   "module.train() before make_private")
        finally:
            self.rows = learned

    def judge_as_given(self) -> None:
        self.learn()
        self.judge_outputs()
        self.judge_replaced(None)
        self.judge_many()

    def judge_criterion(self) -> None:
        def outputs_of(numbers, versions):
            args, kwargs = self.records.of(numbers, versions)
            draws.seed(1)
            with draws.OneNumber():
                return self.twins.new()(*args, **kwargs)

        losses.check(self.criterion, self.reduction, self.records, self.numbers, self.replaced, outputs_of, self.places,
                     self.many)

    def learn(self) -> None:
        """Of the batch and of each record alone: outputs, losses, gradients and rows."""
        generic = any(isinstance(site, GenericSite) for site in self.sites.values())
        self.watched = False
        together, seen, shapes = self.plain(self.numbers, gradient=generic)
        self.watched = True
        self.batch = [(path, y.detach()) for path, y in together]
        alone = [self.plain([i], gradient=True) for i in self.numbers]
        self.places = places_of(self.batch, [outputs for outputs, _, _ in alone])
        self.shapes = [[y.unflatten(place, (1, -1)).select(place, 0).shape if isinstance(place, int) else y.shape
                        for (_, y), place in zip(outputs, self.places)] for outputs, _, _ in alone]
        self.scalars = self.judge_losses([outputs for outputs, _, _ in alone])
        self.rows, lost = {}, {}
        for name, site in self.sites.items():
            try:
                if seen[name]:
                    self.rows[name] = self.rows_of(site, seen[name], shapes, [(saw[name], own) for _, saw, own in alone])
            except Error as error:
                lost[name] = error
        if lost:
            raise Unattributed(list(lost), next(iter(lost.values())))
        if self.chosen:
            self.judge_rows()
        self.alone = [[y.detach() for _, y in outputs] for outputs, _, _ in alone]
        # Sums of gradients, and their sizes: not the gradients of all records at a time.
        self.sizes, self.scaled, self.total = [], self.zeros(), self.zeros() if generic else {}
        for i in self.numbers:
            gradients, alone[i] = self.gradient_of([i], alone[i][0]), None
            self.sizes.append({name: norm_of(g) for name, g in gradients.items()})
            for name, g in gradients.items():
                self.scaled[name].add_(g, alpha=self.scale(i))
                if generic:
                    self.total[name].add_(g)
            if i == 0:
                self.first = gradients
        if generic:
            self.judge_ordinary_gradient(together)

    def judge_rows(self) -> None:
        """Where values choose shapes, as in routing to experts, rows may be as many a record by chance: other records show it."""
        for version, i in itertools.product(VERSIONS, self.numbers):
            _, seen, shapes = self.plain([i], versions=[version])
            for name, layout in self.rows.items():
                layouts = layout if isinstance(layout, list) else [layout]
                if any(own is not rows.BROADCAST and own.of(count, 1, shapes) is None
                       for call in seen[name] for count, own in zip(call, layouts)):
                    raise Unattributed([name], refusal(
                        f"self-check: how many rows layer {name} sees of a record depends on what the record holds: which rows "
                        "are whose cannot be told. Give every record the same number of rows, with the records in the first "
                        "dimension"))

    def zeros(self) -> dict[str, torch.Tensor]:
        return {name: torch.zeros(p.shape, dtype=torch.float64 if p.dtype == torch.float64 else torch.float32)
                for name, p in self.parameters.items()}

    def rows_of(self, site, seen, shapes, alone):
        """seen: of every call, the rows of each tensor. A module without a rule has its rows by tensor."""
        def one(place: int, may_share: bool):
            counts = lambda calls: {call[place] for call in calls if len(call) > place}  # noqa: E731
            return rows.learn(site.name or "the module", type(site.module).__name__, counts(seen), shapes,
                              [(counts(saw), own) for saw, own in alone], may_share)
        if isinstance(site, GenericSite):
            return [one(place, True) for place in range(min(map(len, seen)))]
        ranks = {call.rank for call in seen}
        return one(0, isinstance(site.module, nn.Embedding) and ranks == {1})

    def judge_losses(self, alone) -> dict[int, str]:
        """Of scalar outputs: whether they are means or sums of one number a record, of two sets of records."""
        places = [j for j, place in enumerate(self.places) if place == SCALAR]
        if self.criterion is not None or not places:
            return {}
        found = {j: self.judge_loss(j, self.batch, alone) for j in places}
        others = [1] * len(self.numbers)
        with torch.no_grad():
            batch = self.plain(self.numbers, versions=others)[0]
            alone = [self.plain([i], versions=[1])[0] for i in self.numbers]
        for j in places:
            self.judge_loss(j, batch, alone)
        return found

    def judge_loss(self, j: int, batch, alone) -> str:
        path, y = batch[j]
        of_each = torch.stack([outputs[j][1].detach().double() for outputs in alone])
        size = max(1e-5, TOLERANCE[y.dtype][1]) * of_each.abs().max().item()
        ways = [way for way, value in (("mean", of_each.mean()), ("sum", of_each.sum()))
                if (value - y).abs().item() <= size * losses.roundings(way, len(alone))]
        if not ways:
            refuse(f"self-check: the output{path} is a loss that couples records: for a batch it is {y.item():.4g}, where "
                   f"the mean over its records alone is {of_each.mean().item():.4g}. A mean over all tokens that are not "
                   "padding, as Hugging Face models return it, is of this kind. Leave the labels out of the module's inputs "
                   "and compute one loss a record; or give criterion=, the loss of outputs and targets that you train with; "
                   "or example_inputs= with labels, if no label is ever ignored and all records are equally long")
        if self.reduction not in ways:
            refuse(f"self-check: the output{path} is a {ways[0]} over records, and loss_reduction is '{self.reduction}'; "
                   f"give loss_reduction='{ways[0]}'")
        return self.reduction

    def gradient_of(self, numbers, outputs) -> dict[str, torch.Tensor]:
        loss = loss_of(outputs, self.places, self.shapes, numbers, self.scalars)
        if not loss.requires_grad:
            refuse("the self-check found no output that depends on trained parameters; give example_inputs=(…), with which the "
                   "module returns one, or self_check=False")
        with self.quiet() as mode:
            mode.begin(1)
            found = torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True)
            mode.end()
        return {name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(self.parameters.items(), found)}

    def judge_gradients(self, got: Outcome, numbers) -> None:
        """(b): the clipped sum is that of autograd, record by record."""
        own, floor = TOLERANCE[self.dtype]
        norms = torch.tensor([math.hypot(*self.sizes[i].values()) for i in numbers], dtype=torch.float64)
        whole = norms.max().item()
        for name, p in self.parameters.items():
            difference = got.sums[name].view(p.shape) - self.scaled[name]
            if numbers[0] != 0:  # the first is left out
                difference.add_(self.first[name], alpha=self.scale(0))
            size, apart = max(self.sizes[i][name] for i in numbers), norm_of(difference)
            if not apart <= own * size + floor * whole:
                error = refusal(
                    f"self-check: the clipped gradient of {name} is not that of autograd, record by record. Either its layer "
                    "mixes records of a batch, or depends on how many there are or how long the longest is, or its rows are "
                    f"not the records, or its rule is wrong; relative difference {apart / max(size, 1e-300):.2g}")
                # A tensor that seemed to be shared may hold the records in another dimension.
                shared = [name for name, layout in self.rows.items() if isinstance(layout, list) and rows.BROADCAST in layout]
                raise Unattributed(shared, error) if shared else error
        # From above they may be further: they include what products of many positions can lose (ghost.md, pairs).
        if not ((got.norms >= norms * (1 - own) - floor * whole) & (got.norms <= norms * 1.05 + floor * whole)).all():
            refuse("self-check: the norms of records are not those of autograd")

    def judge_outputs(self, batch=None, numbers=None) -> None:
        """(b), where nothing is clipped: the outputs of an ordinary pass are those of each record alone."""
        batch, numbers = batch or self.batch, numbers or self.numbers
        for j, ((path, y), place) in enumerate(zip(batch, self.places)):
            if place == SCALAR:
                continue
            allowed = 10 * TOLERANCE[y.dtype if y.dtype in TOLERANCE else torch.float32][0]
            for position, i in enumerate(numbers):
                one = self.alone[i][j]
                if place != SHARED:
                    one = one.unflatten(place, (1, -1)).select(place, 0)
                block = y if place == SHARED and y.shape == one.shape else None
                if place != SHARED:
                    block = part(y, place, len(numbers), position, self.shapes[i][j])
                if block is not None and not away(block, one) <= allowed:
                    refuse(f"self-check: the output{path} of a record in a batch is not what it is alone: the module mixes "
                           "records, or depends on how many there are or how long the longest is; relative difference "
                           f"{away(block, one):.2g}")

    def judge_state(self, a: dict, b: dict, cause: str) -> None:
        """(c)"""
        changed = memory.differences(a, b)
        if not changed:
            return
        if changed == [memory.GENERATORS]:
            refuse("self-check: how many random numbers the module draws, or their seed, depends on the records that it sees, so "
                   "that one record decides what others draw. RReLU does so in training: use LeakyReLU, or draw one number for "
                   "every element")
        buffers, parameters = dict(self.module.named_buffers()), dict(self.module.named_parameters())
        named = [path for path in changed if path in buffers or path in parameters]
        path = (named or changed)[0]
        kind = "buffer" if path in buffers else "parameter" if path in parameters else "state"
        refuse(f"self-check: the {kind} {path} changes with {cause}, and nothing noises it; later steps or a checkpoint of the "
               "module would show it. Use a layer that does not remember records, or keep it in eval mode")

    def judge_outside(self) -> None:
        """What copies of the module share, as variables of functions, cannot be put back for another pass."""
        changed = memory.differences(self.held, memory.fingerprint(self.original))
        changed = [path for path in changed if path != memory.GENERATORS]
        if changed:
            refuse(f"self-check: {changed[0]} of the module itself changed while copies of it were called: they share it, as a "
                   "variable of a function, so that whether it remembers records cannot be judged. Keep state in buffers of the "
                   "module, or do not keep it")

    def judge_replaced(self, before: Twice | None) -> None:
        """(a), (c) and (d), with random numbers that are drawn again from the same seed. before: with no record replaced."""
        if self.drawn:
            self.judge_ordinary()
        before, after = before or self.twice(), self.twice(self.versions)
        self.judge_state(before.held, after.held, "the records that the module sees")
        self.judge_equal(before.first, after.first, [i for i in self.numbers if i != self.replaced],
                         "a record changes when another one is replaced: the module mixes the records of a batch")
        self.judge_equal(before.second, after.second, self.numbers,
                         "a record changes with the records of the pass before: the module remembers them")

    def judge_ordinary_gradient(self, outputs) -> None:
        """(b) for gradients of an ordinary pass: a module without a rule is run record by record where gradients are clipped,
        and would be another function if it mixed them."""
        got = self.gradient_of(self.numbers, outputs)
        own, floor = TOLERANCE[self.dtype]
        whole = max(math.hypot(*one.values()) for one in self.sizes)
        for name, g in got.items():
            size = max(one[name] for one in self.sizes)
            if not norm_of(g - self.total[name]) <= own * size + floor * whole:
                refuse(f"self-check: the gradient of {name} for a batch is not the sum of those of its records alone: the module "
                       "mixes the records of a batch, or depends on how many there are")

    def judge_ordinary(self) -> None:
        """(a) for outputs of an ordinary pass of a module that draws random numbers, which may hide its mixing in one draw and
        show it in another."""
        for seed in DRAWS:
            self.judge_draw(seed, self.numbers)

    def judge_draw(self, seed: int, numbers: list[int], equal=same) -> None:
        found, held = [], []
        for versions in (None, [int(position == self.replaced) for position in range(len(numbers))]):
            twin = self.twins.new()
            draws.seed(2)
            args, kwargs = self.records.of(numbers, versions)
            draws.seed(seed)
            with torch.no_grad():
                found.append(floats_of(twin(*args, **kwargs)))
            if numbers is not self.numbers:
                held.append(memory.fingerprint(twin))
            self.twins.give_back(twin)
        if held:
            self.judge_state(*held, "the records that the module sees")
        for (path, x), (_, y), place, shapes in zip(*found, self.places, zip(*self.shapes)):
            if isinstance(place, int) and not all(
                    equal(*(part(z, place, len(numbers), position, shapes[i]) for z in (x, y)))
                    for position, i in enumerate(numbers) if position != self.replaced):
                refuse(f"self-check: the output{path} of a record changes when another one is replaced, in a batch of "
                       f"{len(numbers)}: the module mixes the records of a batch")

    def judge_many(self) -> None:
        """(e). Where values choose how many rows a layer without a rule sees, as in routing to experts, products may round in
        another way in an ordinary pass; where gradients are clipped each record has its own."""
        if not self.many:
            return
        routed = self.chosen and any(isinstance(site, GenericSite) for site in self.sites.values())
        allowed = TOLERANCE[self.dtype][0]
        self.judge_draw(2, self.many[0], (lambda x, y: away(x, y) <= allowed) if routed else same)
        for numbers in self.many:
            batch = [(path, y.detach()) for path, y in self.plain(numbers)[0]]
            if len(batch) != len(self.places):
                refuse(f"self-check: the module returns other outputs for {len(numbers)} records than for {len(self.numbers)}")
            self.judge_outputs(batch, numbers)
            for j in self.scalars:
                self.judge_loss(j, batch, [[(None, y) for y in self.alone[i]] for i in numbers])

    def judge_equal(self, a: Outcome, b: Outcome, others, fault: str) -> None:
        for (path, x), (_, y), place, shapes in zip(a.outputs, b.outputs, self.places, zip(*self.shapes)):
            parts = [(x, y)] if not isinstance(place, int) else [
                tuple(part(z, place, len(self.numbers), i, shapes[i]) for z in (x, y)) for i in others]
            if place == SCALAR and len(others) < len(self.numbers):
                continue
            if not all(same(p, q) for p, q in parts):
                refuse(f"self-check: the output{path} of {fault}")
        if not torch.equal(a.norms[others], b.norms[others]):
            refuse(f"self-check: the norm of {fault}")
        for name in self.parameters:
            if not same(a.sums[name], b.sums[name]):
                refuse(f"self-check: the gradient of {name} of {fault}")

    def scale(self, i: int) -> float:
        return 0.0 if i == self.replaced else 1 / (1 + i)
