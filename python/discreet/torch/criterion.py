"""The loss that is given as criterion=: a mean or sum of one number a record, as loss_reduction says.

It is judged on the module's outputs and made-up targets: integers over the width of the outputs, some of them ignored ones.
Alone, every record has the loss and the output gradients that it has in the batch, up to rounding; and when one record is
replaced, the output gradients of all others are unchanged in every bit. The default ignore_index, -100, is tried where a record
has several targets only: that a record's only label is ignored must be said, by another ignore_index.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping

import torch
from torch import nn

from discreet.torch.errors import refuse
from discreet.torch.outputs import SCALAR, floats_of, part, same
from discreet.torch.publicrecords import CANNOT_CALL, IGNORED

NAMES = ("labels", "label", "targets", "target", "y")
UNKNOWN = (IGNORED, -1)  # values that a function may ignore


def check_reduction(criterion, reduction: str) -> None:
    named = getattr(criterion, "reduction", reduction)
    if named in ("mean", "sum") and named != reduction:
        refuse(f"the criterion has reduction='{named}', and loss_reduction is '{reduction}'; give loss_reduction='{named}'")


def roundings(way: str, n: int) -> float:
    """By how much more a sum of n losses is rounded than one of a few."""
    return max(1.0, n / 16) if way == "sum" else 1.0


def check(criterion, reduction: str, records, numbers, replaced: int, outputs_of, places, many=()) -> None:
    """Rejects a criterion of (outputs, targets) that couples records, that reduces them in another way than is said, or that
    cannot be judged. outputs_of: numbers and versions of records → the module's outputs. places: of those (outputs.py).
    many: larger batches of the same records, in which it is judged too."""
    judge = Judge(criterion, reduction, records, numbers, replaced, outputs_of, places)
    widths = {y.shape[d] for _, y in floats_of(outputs_of(numbers, None)) for d in (1, -1) if y.dim() > 1}
    for judge.width in sorted(widths | {2}, reverse=True):
        if judge.can_be_called():
            break
    else:
        refuse("self-check: the criterion cannot be judged: calling it as criterion(outputs, targets), with records of the data "
               f"set's shapes and types, failed ({judge.error}). The targets are the last of a tuple, or of a dictionary what "
               "the module does not take. Give a function of these two, or leave criterion out")
    judge.refuse_weights()
    for batch in (numbers, *many):
        judge.run(batch)
    for judge.ignored in [criterion.ignore_index] if hasattr(criterion, "ignore_index") else UNKNOWN:
        if judge.can_be_called():
            judge.run(numbers)


def targets_of(module, batch) -> list:
    """What a loop may give the criterion."""
    if isinstance(batch, Mapping):
        takes = inspect.signature(module.forward).parameters
        left = [key for key in batch if key not in takes]
        named = [key for key in NAMES if key in batch]
        return [batch[key] for key in (left if len(left) == 1 else named[:1])] + [batch]
    if isinstance(batch, (list, tuple)) and batch:
        return [batch[-1], *([batch[1:]] if len(batch) > 2 else [])]
    return [batch]


class Judge:
    def __init__(self, criterion, reduction, records, numbers, replaced, outputs_of, places) -> None:
        self.criterion, self.reduction, self.records, self.numbers = criterion, reduction, records, numbers
        self.replaced, self.outputs_of, self.places = replaced, outputs_of, places
        self.width, self.ignored, self.choice, self.error = 2, None, 0, None

    @contextlib.contextmanager
    def drawing(self):
        """Targets, in place of the values that the module takes."""
        drawn, leaves = self.records.drawn, self.records.index_leaves()
        before = drawn.ranges, drawn.ignored, drawn.ignoring, drawn.lowest
        several = {leaf for leaf, one in leaves.items() if not one}
        drawn.ranges, drawn.lowest = dict.fromkeys(leaves, self.width), 0
        drawn.ignored = self.ignored
        drawn.ignoring = set() if self.ignored is None else several if self.ignored == IGNORED else set(leaves)
        try:
            yield
        finally:
            drawn.ranges, drawn.ignored, drawn.ignoring, drawn.lowest = before

    def targets(self, numbers, versions=None) -> list:
        with self.drawing():
            return targets_of(self.records.module, self.records.whole(numbers, versions))

    def can_be_called(self) -> bool:
        try:
            count = len(self.targets(self.numbers))
        except CANNOT_CALL as error:
            self.error = error
            return False
        for self.choice in range(count):
            try:
                for numbers in (self.numbers, *([i] for i in self.numbers)):
                    self.evaluate(numbers)
                self.evaluate(self.numbers, self.versions(self.numbers))
                return True
            except CANNOT_CALL as error:
                self.error = self.error or error
        return False

    def versions(self, numbers) -> list[int]:
        return [int(position == self.replaced) for position in range(len(numbers))]

    def evaluate(self, numbers, versions=None):
        """The loss, and its gradient in each output."""
        outputs = self.outputs_of(numbers, versions)
        loss = self.criterion(outputs, self.targets(numbers, versions)[self.choice])
        loss = loss if loss.dim() == 0 else loss.mean() if self.reduction == "mean" else loss.sum()
        floats = [y for _, y in floats_of(outputs)]
        found = iter(torch.autograd.grad(loss, [y for y in floats if y.requires_grad], allow_unused=True)
                     if loss.requires_grad else ())
        return loss.detach(), [next(found, None) if y.requires_grad else None for y in floats]

    def run(self, numbers) -> None:
        (whole, got), own = self.evaluate(numbers), {i: self.evaluate([i]) for i in self.numbers}
        alone = [own[i] for i in numbers]
        for place, g in zip(self.places, got):
            if place == SCALAR and g is not None and g.item() != 0:
                refuse("self-check: the criterion uses a scalar that the module returns, of which no record's part is known. "
                       "Leave criterion out, so that this scalar is judged as the loss")
        each = torch.stack([loss.double() for loss, _ in alone])
        size = (1e-5 if whole.dtype in (torch.float32, torch.float64) else 0.02) * each.abs().max().item() + 1e-12
        ways = [way for way, value in (("mean", each.mean()), ("sum", each.sum()))
                if (value - whole).abs().item() <= size * roundings(way, len(numbers))]
        if not ways or not self.gradients_agree(got, [g for _, g in alone], ways) or not self.others_are_equal(numbers, got):
            self.refuse_coupling()
        if self.reduction not in ways:
            refuse(f"the criterion is a {ways[0]} over records, and loss_reduction is '{self.reduction}'; give "
                   f"loss_reduction='{ways[0]}'")

    def refuse_coupling(self) -> None:
        cause = "" if self.ignored is None else f" where targets are {self.ignored}, which it ignores"
        refuse(f"self-check: the criterion couples records{cause}: a record's loss or gradient in a batch is not what it is alone, "
               "or changes with another record, so that no record's can be bounded. Give one that is a mean or sum of one number "
               "a record; divide by a public number, not by one of the batch")

    def refuse_weights(self) -> None:
        """A mean that is divided by the weights of the batch's classes, of which not all may have been drawn."""
        weight = getattr(self.criterion, "weight", None)
        if not isinstance(self.criterion, (nn.CrossEntropyLoss, nn.NLLLoss)) or weight is None or self.reduction != "mean":
            return
        targets = self.targets(self.numbers)[self.choice]
        if isinstance(targets, torch.Tensor) and not targets.is_floating_point() and not bool((weight == weight.flatten()[0]).all()):
            refuse("self-check: the criterion couples records: with class weights its mean is divided by the sum of the batch's "
                   "weights. Give reduction='sum' and loss_reduction='sum', or take the mean of weight[targets] * cross_entropy(…, "
                   "reduction='none')")

    def gradients_agree(self, got, alone, ways) -> bool:
        n = len(alone)
        for j, (place, g) in enumerate(zip(self.places, got)):
            if not isinstance(place, int):
                continue
            own = [one[j] for one in alone]
            if g is None or any(one is None for one in own):
                if g is not None or any(one is not None for one in own):
                    return False
                continue
            own = [one.unflatten(place, (1, -1)).select(place, 0) for one in own]
            exact = g.dtype in (torch.float32, torch.float64)
            allowed = {"rtol": 1e-3 if exact else 0.1, "atol": (2e-5 if exact else 0.02) * max(one.abs().max().item() for one in own)}
            if not any(all(torch.allclose((n if way == "mean" else 1) * part(g, place, n, i, own[i].shape), own[i], **allowed)
                           for i in range(n)) for way in ways):
                return False
        return True

    def others_are_equal(self, numbers, got) -> bool:
        """Where one record is replaced, in every bit."""
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
