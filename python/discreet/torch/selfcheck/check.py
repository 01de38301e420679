"""The check before a run: no record may change what other records contribute, and the module may not remember any record.

The check works on copies of the module (twins.py), in the module's own precision and in training mode, with synthetic records
(public_records.py). It repeats the passes in eval mode if parts of the module are in eval mode. The settings of layers are
checked first, at every depth (layers.py). What the collate function makes of a record must not depend on other records
(collated.py). Then, for a batch of a few records, it requires:

(a) If one record is replaced by another of the same shape, the outputs, norms and clipped gradients of all others are
    unchanged in every bit.
(b) If a record is alone, or if one is left out, its outputs, losses and gradients equal those in the batch, up to rounding
    (TOLERANCE). All random numbers are made equal for this comparison, so that a record draws the same numbers alone as in the
    batch (draws.py).
(c) The state of the module after the pass does not depend on the replaced record (memory.py).
(d) A second pass does not depend on the records of the first.
(e) Forward passes with about as many records as the loader's batches, which are copies of the same records, satisfy (a), (c)
    and (b). For (b) there are two batches of different sizes, one of which consists almost entirely of one record.

Since (b) compares with autograd, it also checks the rules of layers. It learns how the rows of each layer belong to records
(rows.py). Where that cannot be determined for a layer, the smallest module above it for which it can runs record by record
(generic.py), so that each row belongs to the current record; (b) compares that with the ordinary module. A scalar output is
checked as a loss.

The check does not see: a coupling that appears only for other values (a branch that no synthetic record takes), only with
small probability, only at other batch sizes, or only in the backward pass of larger batches; memory that memory.py does not
reach and that has no effect on the next pass; what the training loop does with outputs, except for `criterion`; code that acts
differently on a later call, or that detects the check. docs/concepts/pytorch.md lists this, with what would lift each limit.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from discreet.errors import Error
from discreet.torch import rows
from discreet.torch.errors import layer, refusal, refuse
from discreet.torch.generic import GenericSite
from discreet.torch.selfcheck import collated, draws, memory
from discreet.torch.selfcheck import criterion as losses
from discreet.torch.selfcheck.outputs import SCALAR, SHARED, Floats, away, floats_of, loss_of, part, places_of, same
from discreet.torch.selfcheck.passes import Outcome, Rows, Twice, copied, norm_of
from discreet.torch.selfcheck.probe import Probe, Unattributed
from discreet.torch.selfcheck.public_records import CANNOT_CALL, Call
from discreet.torch.sites import Site

Shapes = list[torch.Size]

# (b): the differences allowed, relative to a parameter's gradient and to the record's whole gradient. The second is for
# gradients that are 0 except for rounding, such as that of an attention's key bias.
TOLERANCE = {torch.float64: (1e-7, 1e-10), torch.float32: (1e-3, 2e-5), torch.bfloat16: (0.1, 0.02), torch.float16: (0.1, 0.02)}
FROZEN_IN_EVAL = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
DRAWS = range(10, 18)  # seeds with which a module that draws random numbers is checked
VERSIONS = range(2, 5)  # versions of records for which rows are counted again if shapes depend on values


def run(module: nn.Module, data_loader: DataLoader[Any], example_inputs: Any = None, *, reduction: str = "mean",
        criterion: Callable[[Any, Any], torch.Tensor] | None = None, most: int | None = None) -> Layout:
    """Returns how rows belong to records; rejects a module in which the contribution of a record cannot be bounded.
    criterion: the loss as a function of outputs and targets; scalar outputs are then not treated as losses.
    most: maximum number of records of a piece."""
    with draws.kept(), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the module's warnings appear when it is trained
        draws.seed(0)
        try:
            check = Check(module, data_loader, example_inputs, reduction, criterion, most)
            check.run()
            check.run_as_given()
        except Error:
            raise
        except CANNOT_CALL as error:
            if "use_reentrant" in str(error):
                refuse("checkpoint(use_reentrant=True) starts a backward pass inside another one, which would see only part of "
                       "a record's norm; use use_reentrant=False")
            refuse(f"self-check: the module failed in training mode ({type(error).__name__}: {error}). It must be possible to "
                   "call and differentiate it with one record, and several times; it must not keep tensors of one pass for "
                   "the next")
    if check.whole:
        named = ", ".join(sorted(name or "the module" for name in check.whole))
        warnings.warn(f"{named} {'runs' if len(check.whole) == 1 else 'run'} record by record, because it has layers whose "
                      "rows cannot be assigned to records. That is exact but slower, and it stores the gradients of its "
                      "parameters for every record of a piece. To avoid it, freeze those layers, or train adapters (LoRA) of "
                      "other layers",
                      stacklevel=4)
    return Layout(check.rows, check.whole, check.looped)


class Layout(NamedTuple):
    """rows: by layer, how its rows belong to records (Clipper.learn). whole: modules that run record by record because this
    cannot be determined for layers below them. looped: modules whose records run one after the other."""

    rows: dict[str, Any]
    whole: frozenset[str]
    looped: frozenset[str]


class Check(Probe):
    """Checks the results of the passes."""

    alone: list[list[torch.Tensor]]  # by record, its outputs alone
    sizes: list[dict[str, float]]  # by record, the norm of each parameter's gradient

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
            except Error:
                raise
            except CANNOT_CALL:  # what a module returns for one record does not fit where it is used
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
        """Repeats (a), (c) and (d) in the mode that the module has now, if it differs from training mode."""
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
        except (Error, Unattributed) as found:
            error = found.error if isinstance(found, Unattributed) else found
            refuse(f"in eval mode, which parts of the module are in: {error.sentence}. If you train in training mode, call "
                   "module.train() before make_private")
        finally:
            self.rows = learned

    def judge_as_given(self) -> None:
        self.learn()
        self.judge_outputs()
        self.judge_replaced(None)
        self.judge_many()

    def judge_criterion(self) -> None:
        assert self.criterion is not None

        def outputs_of(numbers: Sequence[int], versions: Sequence[int] | None) -> Any:
            args, kwargs = self.records.of(numbers, versions)
            draws.seed(1)
            with draws.OneNumber():
                return self.twins.new()(*args, **kwargs)

        losses.check(self.criterion, self.reduction, self.records, self.numbers, self.replaced, outputs_of, self.places,
                     self.many)

    def learn(self) -> None:
        """Computes outputs, losses, gradients and rows of the batch and of each record alone."""
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
        self.rows = {}
        lost: dict[str, Error] = {}
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
        # Sums of gradients and their norms; the gradients of all records are never in memory at once.
        self.sizes, self.scaled, self.total = [], self.zeros(), self.zeros() if generic else {}
        for i in self.numbers:
            gradients = self.gradient_of([i], alone[i][0])
            alone[i] = ([], {}, [])  # frees the graph of this record
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
        """If shapes depend on values, as in routing to experts, records may have equally many rows by chance; other records
        show whether they do."""
        for version, i in itertools.product(VERSIONS, self.numbers):
            _, seen, shapes = self.plain([i], versions=[version])
            for name, layout in self.rows.items():
                layouts = layout if isinstance(layout, list) else [layout]
                if any(own is not rows.BROADCAST and own.of(count, 1, shapes) is None
                       for call in seen[name] for count, own in zip(call, layouts)):
                    raise Unattributed([name], refusal(
                        f"self-check: the number of rows that {layer(name)} sees for a record depends on the record's values, "
                        "so the rows of each record cannot be determined. Use the same number of rows for every record, with "
                        "the records in the first dimension"))

    def zeros(self) -> dict[str, torch.Tensor]:
        return {name: torch.zeros(p.shape, dtype=torch.float64 if p.dtype == torch.float64 else torch.float32)
                for name, p in self.parameters.items()}

    def rows_of(self, site: Site | GenericSite, seen: list[Rows], shapes: Shapes,
                alone: list[tuple[list[Rows], Shapes]]) -> Any:
        """seen: for every call, the rows of each tensor. A module without a rule has one layout per tensor."""
        def one(place: int, may_share: bool) -> Any:
            def counts(calls: list[Rows]) -> set[int]:
                return {call[place] for call in calls if len(call) > place}

            return rows.learn(site.name, type(site.module).__name__, counts(seen), shapes,
                              [(counts(saw), own) for saw, own in alone], may_share)
        if isinstance(site, GenericSite):
            return [one(place, True) for place in range(min(map(len, seen)))]
        ranks = {call.rank for call in seen}
        return one(0, isinstance(site.module, nn.Embedding) and ranks == {1})

    def judge_losses(self, alone: list[Floats]) -> dict[int, str]:
        """The reduction of each scalar output: it must be the mean or sum of one number per record, for two sets of records."""
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

    def judge_loss(self, j: int, batch: Floats, alone: Sequence[Floats]) -> str:
        path, y = batch[j]
        of_each = torch.stack([outputs[j][1].detach().double() for outputs in alone])
        size = max(1e-5, TOLERANCE[y.dtype][1]) * of_each.abs().max().item()
        ways = [way for way, value in (("mean", of_each.mean()), ("sum", of_each.sum()))
                if (value - y).abs().item() <= size * losses.roundings(way, len(alone))]
        if not ways:
            refuse(f"self-check: the output{path} is a loss that couples records: for a batch it is {y.item():.4g}, but the "
                   f"mean over its records alone is {of_each.mean().item():.4g}. For example, Hugging Face models return a "
                   "mean over all tokens that are not padding, which couples records. Either omit the labels from the module's "
                   "inputs and compute one loss per record; or pass criterion=, the loss of outputs and targets that you train "
                   "with; or, if no label is ever ignored and all records have the same length, pass example_inputs= with "
                   "labels")
        if self.reduction not in ways:
            refuse(f"self-check: the output{path} is a {ways[0]} over records, but loss_reduction is '{self.reduction}'; "
                   f"use loss_reduction='{ways[0]}'")
        return self.reduction

    def gradient_of(self, numbers: Sequence[int], outputs: Floats) -> dict[str, torch.Tensor]:
        loss = loss_of(outputs, self.places, self.shapes, numbers, self.scalars)
        if not loss.requires_grad:
            refuse("the self-check found no output that depends on trained parameters; pass example_inputs=(…) with which the "
                   "module returns such an output, or self_check=False")
        with self.quiet() as mode:
            mode.begin(1)
            found = torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True)
            mode.end()
        return {name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(self.parameters.items(), found)}

    def judge_gradients(self, got: Outcome, numbers: list[int]) -> None:
        """(b): the clipped sum equals the one that autograd computes record by record."""
        own, floor = TOLERANCE[self.dtype]
        norms = torch.tensor([math.hypot(*self.sizes[i].values()) for i in numbers], dtype=torch.float64)
        whole = norms.max().item()
        for name, p in self.parameters.items():
            difference = got.sums[name].view(p.shape) - self.scaled[name]
            if numbers[0] != 0:  # record 0 is left out
                difference.add_(self.first[name], alpha=self.scale(0))
            size, apart = max(self.sizes[i][name] for i in numbers), norm_of(difference)
            if not apart <= own * size + floor * whole:
                error = refusal(
                    f"self-check: the clipped gradient of {name} differs from the one that autograd computes record by record "
                    f"(relative difference {apart / max(size, 1e-300):.2g}). Its layer mixes records of a batch, or depends on "
                    "how many there are or how long the longest is; or its rows are not the records; or its rule is wrong")
                # A tensor that seemed to be shared may have the records in another dimension.
                shared = [name for name, layout in self.rows.items() if isinstance(layout, list) and rows.BROADCAST in layout]
                raise Unattributed(shared, error) if shared else error
        # They may be larger by more: they include what products of many positions can lose (ghost.md, pairs).
        if not ((got.norms >= norms * (1 - own) - floor * whole) & (got.norms <= norms * 1.05 + floor * whole)).all():
            refuse("self-check: the gradient norms of records differ from those that autograd computes; a layer's rows are not "
                   "the records, or its rule is wrong")

    def judge_outputs(self, batch: Floats | None = None, numbers: list[int] | None = None) -> None:
        """(b) without clipping: the outputs of an ordinary pass equal those of each record alone."""
        batch, numbers = batch or self.batch, numbers or self.numbers
        for j, ((path, y), place) in enumerate(zip(batch, self.places)):
            if place == SCALAR:
                continue
            allowed = 10 * TOLERANCE[y.dtype if y.dtype in TOLERANCE else torch.float32][0]
            for position, i in enumerate(numbers):
                one = self.alone[i][j]
                if isinstance(place, int):
                    one = one.unflatten(place, (1, -1)).select(place, 0)
                block = y if place == SHARED and y.shape == one.shape else None
                if isinstance(place, int):
                    block = part(y, place, len(numbers), position, self.shapes[i][j])
                if block is not None and not away(block, one) <= allowed:
                    refuse(f"self-check: the output{path} of a record in a batch differs from its output alone (relative "
                           f"difference {away(block, one):.2g}): the module mixes records, or depends on how many there are or "
                           "how long the longest is")

    def judge_state(self, a: dict[str, object], b: dict[str, object], cause: str) -> None:
        """(c)"""
        changed = memory.differences(a, b)
        if not changed:
            return
        if changed == [memory.GENERATORS]:
            refuse("self-check: the number of random numbers that the module draws, or their seed, depends on the records, so "
                   "one record changes what others draw. RReLU does this in training mode: use LeakyReLU, or draw one number "
                   "for every element")
        buffers, parameters = dict(self.module.named_buffers()), dict(self.module.named_parameters())
        named = [path for path in changed if path in buffers or path in parameters]
        path = (named or changed)[0]
        kind = "buffer" if path in buffers else "parameter" if path in parameters else "state"
        refuse(f"self-check: the {kind} {path} changes with {cause}, but gets no noise; later steps or a checkpoint of the "
               "module would reveal it. Use a layer that does not remember records, or keep it in eval mode")

    def judge_outside(self) -> None:
        """State that copies of the module share, such as variables of functions, cannot be reset before another pass."""
        changed = memory.differences(self.held, memory.fingerprint(self.original))
        changed = [path for path in changed if path != memory.GENERATORS]
        if changed:
            refuse(f"self-check: {changed[0]} of the module itself changed while copies of it were called. They share it, for "
                   "instance as a variable of a function, so the check cannot see whether it remembers records. Keep state in "
                   "buffers of the module, or keep none")

    def judge_replaced(self, before: Twice | None) -> None:
        """(a), (c) and (d), with random numbers drawn again from the same seed. before: the passes with no record replaced."""
        if self.drawn:
            self.judge_ordinary()
        before, after = before or self.twice(), self.twice(self.versions)
        self.judge_state(before.held, after.held, "the records that the module sees")
        self.judge_equal(before.first, after.first, [i for i in self.numbers if i != self.replaced],
                         "a record changes when another one is replaced: the module mixes the records of a batch")
        self.judge_equal(before.second, after.second, self.numbers,
                         "a record changes with the records of the pass before: the module remembers them")

    def judge_ordinary_gradient(self, outputs: Floats) -> None:
        """(b) for gradients of an ordinary pass: a module without a rule runs record by record when gradients are clipped, and
        would compute another function if it mixed records."""
        got = self.gradient_of(self.numbers, outputs)
        own, floor = TOLERANCE[self.dtype]
        whole = max(math.hypot(*one.values()) for one in self.sizes)
        for name, g in got.items():
            size = max(one[name] for one in self.sizes)
            if not norm_of(g - self.total[name]) <= own * size + floor * whole:
                refuse(f"self-check: the gradient of {name} for a batch differs from the sum of the gradients of its records "
                       "alone: the module mixes the records of a batch, or depends on how many there are")

    def judge_ordinary(self) -> None:
        """(a) for the outputs of ordinary passes of a module that draws random numbers: mixing may be visible only for some
        draws."""
        pair = self.replaced_pair(self.numbers)
        for seed in DRAWS:
            self.judge_draw(seed, self.numbers, pair)

    def replaced_pair(self, numbers: list[int]) -> list[Call]:
        """The module's arguments for these records, and for the same with one of them replaced."""
        pair = []
        for versions in (None, [int(position == self.replaced) for position in range(len(numbers))]):
            draws.seed(2)
            pair.append(self.records.of(numbers, versions))
        return pair

    def judge_draw(self, seed: int, numbers: list[int], pair: list[Call],
                   equal: Callable[[torch.Tensor, torch.Tensor], bool] = same) -> None:
        found: list[Floats] = []
        held: list[dict[str, object]] = []
        for args, kwargs in pair:
            twin = self.twins.new()
            draws.seed(seed)
            with torch.no_grad():
                found.append(floats_of(twin(*tree_map(copied, args), **tree_map(copied, kwargs))))
            if numbers is not self.numbers:
                held.append(memory.fingerprint(twin))
            self.twins.give_back(twin)
        if held:
            self.judge_state(held[0], held[1], "the records that the module sees")
        for (path, x), (_, y), place, shapes in zip(*found, self.places, zip(*self.shapes)):
            if isinstance(place, int) and not all(
                    equal(*(part(z, place, len(numbers), position, shapes[i]) for z in (x, y)))
                    for position, i in enumerate(numbers) if position != self.replaced):
                refuse(f"self-check: the output{path} of a record changes when another one is replaced, in a batch of "
                       f"{len(numbers)}: the module mixes the records of a batch")

    def judge_many(self) -> None:
        """(e). If values determine how many rows a layer without a rule sees, as in routing to experts, products may round
        differently in an ordinary pass; when gradients are clipped, each record has its own products."""
        if not self.many:
            return
        routed = self.chosen and any(isinstance(site, GenericSite) for site in self.sites.values())
        allowed = TOLERANCE[self.dtype][0]
        self.judge_draw(2, self.many[0], self.replaced_pair(self.many[0]),
                        (lambda x, y: away(x, y) <= allowed) if routed else same)
        for numbers in self.many:
            batch = [(path, y.detach()) for path, y in self.plain(numbers)[0]]
            if len(batch) != len(self.places):
                refuse(f"self-check: the module returns {len(batch)} outputs for {len(numbers)} records, but "
                       f"{len(self.places)} for {len(self.numbers)}; it must return the same outputs for every number of "
                       "records")
            self.judge_outputs(batch, numbers)
            for j in self.scalars:
                self.judge_loss(j, batch, [[("", y) for y in self.alone[i]] for i in numbers])

    def judge_equal(self, a: Outcome, b: Outcome, others: list[int], fault: str) -> None:
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
