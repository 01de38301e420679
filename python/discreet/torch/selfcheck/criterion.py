"""Checks the loss passed as criterion=: it must be the mean or sum of one number per record, according to loss_reduction.

The check uses the module's outputs and synthetic targets: integers below the width of the outputs, some of them ignored.
Alone, every record must have the same loss and output gradients as in the batch, up to rounding; and if one record is
replaced, the output gradients of all others must be unchanged in every bit. The default ignore_index, -100, is tried only if
a record has several targets: to ignore a record's only label, set another ignore_index.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from discreet.errors import Error
from discreet.torch.errors import refuse
from discreet.torch.selfcheck.outputs import SCALAR, floats_of, part, same
from discreet.torch.selfcheck.public_records import CANNOT_CALL, IGNORED

if TYPE_CHECKING:
    from discreet.torch.selfcheck.public_records import Records

Numbers = Sequence[int]  # of records
OutputsOf = Callable[[Numbers, "Numbers | None"], Any]
NAMES = ("labels", "label", "targets", "target", "y")
UNKNOWN = (IGNORED, -1)  # values that a function may ignore


def check_reduction(criterion: Any, reduction: str) -> None:
    named = getattr(criterion, "reduction", reduction)
    if named in ("mean", "sum") and named != reduction:
        refuse(f"the criterion has reduction='{named}', but loss_reduction is '{reduction}'; use loss_reduction='{named}'")


def roundings(way: str, n: int) -> float:
    """The factor by which a sum of n losses is rounded more than a sum of a few."""
    return max(1.0, n / 16) if way == "sum" else 1.0


def check(criterion: Callable[[Any, Any], torch.Tensor], reduction: str, records: Records, numbers: Numbers,
          replaced: int, outputs_of: OutputsOf, places: Sequence[object], many: Sequence[Numbers] = ()) -> None:
    """Rejects a criterion of (outputs, targets) that couples records, that reduces them differently from loss_reduction, or
    that cannot be checked. outputs_of: numbers and versions of records → the module's outputs. places: of the outputs
    (outputs.py). many: larger batches of the same records, which are checked too."""
    judge = Judge(criterion, reduction, records, numbers, replaced, outputs_of, places)
    widths = {y.shape[d] for _, y in floats_of(outputs_of(numbers, None)) for d in (1, -1) if y.dim() > 1}
    for judge.width in sorted(widths | {2}, reverse=True):
        if judge.can_be_called():
            break
    else:
        refuse("self-check: the criterion cannot be checked: calling it as criterion(outputs, targets), with records of the "
               f"data set's shapes and types, failed ({judge.error}). The targets are the last item of a tuple, or the items "
               "of a dictionary that the module does not take. Pass a function of these two, or omit criterion")
    judge.refuse_weights()
    for batch in (numbers, *many):
        judge.run(batch)
    ignored = [criterion.ignore_index] if hasattr(criterion, "ignore_index") else UNKNOWN
    for judge.ignored in ignored:
        if judge.can_be_called():
            judge.run(numbers)


def targets_of(module: nn.Module, batch: Any) -> list[Any]:
    """The targets that a loop may pass to the criterion."""
    if isinstance(batch, Mapping):
        takes = inspect.signature(module.forward).parameters
        left = [key for key in batch if key not in takes]
        named = [key for key in NAMES if key in batch]
        return [batch[key] for key in (left if len(left) == 1 else named[:1])] + [batch]
    if isinstance(batch, (list, tuple)) and batch:
        return [batch[-1], *([batch[1:]] if len(batch) > 2 else [])]
    return [batch]


class Judge:
    def __init__(self, criterion: Callable[[Any, Any], torch.Tensor], reduction: str, records: Records,
                 numbers: Numbers, replaced: int, outputs_of: OutputsOf, places: Sequence[object]) -> None:
        self.criterion, self.reduction, self.records, self.numbers = criterion, reduction, records, numbers
        self.replaced, self.outputs_of, self.places = replaced, outputs_of, places
        self.width, self.choice = 2, 0
        self.ignored: int | None = None
        self.error: Exception | None = None

    @contextlib.contextmanager
    def drawing(self) -> Iterator[None]:
        """Draws targets instead of the values that the module takes."""
        drawn, leaves = self.records.drawn, self.records.index_leaves()
        before = drawn.ranges, drawn.ignored, drawn.ignoring, drawn.lowest
        several = {leaf for leaf, one in leaves.items() if not one}
        drawn.ranges, drawn.lowest = dict.fromkeys(leaves, self.width), 0
        drawn.ignored = IGNORED if self.ignored is None else self.ignored
        drawn.ignoring = set() if self.ignored is None else several if self.ignored == IGNORED else set(leaves)
        try:
            yield
        finally:
            drawn.ranges, drawn.ignored, drawn.ignoring, drawn.lowest = before

    def targets(self, numbers: Numbers, versions: Numbers | None = None) -> list[Any]:
        with self.drawing():
            return targets_of(self.records.module, self.records.whole(numbers, versions))

    def can_be_called(self) -> bool:
        try:
            count = len(self.targets(self.numbers))
        except Error:
            raise
        except CANNOT_CALL as error:
            self.error = error
            return False
        for self.choice in range(count):
            try:
                for numbers in (self.numbers, *([i] for i in self.numbers)):
                    self.evaluate(numbers)
                self.evaluate(self.numbers, self.versions(self.numbers))
                return True
            except Error:
                raise
            except CANNOT_CALL as error:
                self.error = self.error or error
        return False

    def versions(self, numbers: Numbers) -> list[int]:
        return [int(position == self.replaced) for position in range(len(numbers))]

    def evaluate(self, numbers: Numbers, versions: Numbers | None = None) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        """The loss, and its gradient with respect to each output."""
        outputs = self.outputs_of(numbers, versions)
        loss = self.criterion(outputs, self.targets(numbers, versions)[self.choice])
        loss = loss if loss.dim() == 0 else loss.mean() if self.reduction == "mean" else loss.sum()
        floats = [y for _, y in floats_of(outputs)]
        found = iter(torch.autograd.grad(loss, [y for y in floats if y.requires_grad], allow_unused=True)
                     if loss.requires_grad else ())
        return loss.detach(), [next(found, None) if y.requires_grad else None for y in floats]

    def run(self, numbers: Numbers) -> None:
        (whole, got), own = self.evaluate(numbers), {i: self.evaluate([i]) for i in self.numbers}
        alone = [own[i] for i in numbers]
        for place, g in zip(self.places, got):
            if place == SCALAR and g is not None and g.item() != 0:
                refuse("self-check: the criterion uses a scalar that the module returns, so each record's part is unknown. "
                       "Omit criterion, so that this scalar is checked as the loss")
        each = torch.stack([loss.double() for loss, _ in alone])
        size = (1e-5 if whole.dtype in (torch.float32, torch.float64) else 0.02) * each.abs().max().item() + 1e-12
        ways = [way for way, value in (("mean", each.mean()), ("sum", each.sum()))
                if (value - whole).abs().item() <= size * roundings(way, len(numbers))]
        if not ways or not self.gradients_agree(got, [g for _, g in alone], ways) or not self.others_are_equal(numbers, got):
            self.refuse_coupling()
        if self.reduction not in ways:
            refuse(f"the criterion is a {ways[0]} over records, but loss_reduction is '{self.reduction}'; use "
                   f"loss_reduction='{ways[0]}'")

    def refuse_coupling(self) -> None:
        cause = "" if self.ignored is None else f" if targets are {self.ignored}, which it ignores"
        refuse(f"self-check: the criterion couples records{cause}: a record's loss or gradient in a batch differs from that of "
               "the record alone, or changes with another record, so it cannot be bounded. Use a mean or sum of one number per "
               "record; divide by a public number, not by one of the batch")

    def refuse_weights(self) -> None:
        """Rejects a mean that is divided by the class weights of the batch, of which not all may have been drawn."""
        weight = getattr(self.criterion, "weight", None)
        if not isinstance(self.criterion, (nn.CrossEntropyLoss, nn.NLLLoss)) or weight is None or self.reduction != "mean":
            return
        targets = self.targets(self.numbers)[self.choice]
        equal = bool((weight == weight.flatten()[0]).all())
        if isinstance(targets, torch.Tensor) and not targets.is_floating_point() and not equal:
            refuse("self-check: the criterion couples records: with class weights its mean is divided by the sum of the "
                   "batch's weights. Use reduction='sum' and loss_reduction='sum', or the mean of weight[targets] * "
                   "cross_entropy(…, reduction='none')")

    def gradients_agree(self, got: Sequence[torch.Tensor | None], alone: Sequence[Sequence[torch.Tensor | None]],
                        ways: Sequence[str]) -> bool:
        n = len(alone)
        for j, (place, g) in enumerate(zip(self.places, got)):
            if not isinstance(place, int):
                continue
            formed = [one[j] for one in alone if one[j] is not None]
            if g is None or len(formed) < n:
                if g is not None or formed:
                    return False
                continue
            own = [one.unflatten(place, (1, -1)).select(place, 0) for one in formed if one is not None]
            exact = g.dtype in (torch.float32, torch.float64)
            largest = max(one.abs().max().item() for one in own)
            allowed = {"rtol": 1e-3 if exact else 0.1, "atol": (2e-5 if exact else 0.02) * largest}
            if not any(all(torch.allclose((n if way == "mean" else 1) * part(g, place, n, i, own[i].shape), own[i], **allowed)
                           for i in range(n)) for way in ways):
                return False
        return True

    def others_are_equal(self, numbers: Numbers, got: Sequence[torch.Tensor | None]) -> bool:
        """True if replacing one record leaves the gradients of the others unchanged in every bit."""
        _, after = self.evaluate(numbers, self.versions(numbers))
        n = len(numbers)
        for place, a, b in zip(self.places, got, after):
            if not isinstance(place, int) or a is None and b is None:
                continue
            if a is None or b is None or a.shape != b.shape:
                return False
            a, b = (x.unflatten(place, (n, -1)).movedim(place, 0) for x in (a, b))
            if not all(same(a[i], b[i]) for i in range(n) if i != self.replaced):
                return False
        return True
