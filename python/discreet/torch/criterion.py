"""The loss that is given as criterion=: a mean or sum of one number a record, as loss_reduction says."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_map

from discreet.torch.errors import refuse
from discreet.torch.publicrecords import CANNOT_CALL


def check_reduction(criterion, reduction: str) -> None:
    named = getattr(criterion, "reduction", reduction)
    if named in ("mean", "sum") and named != reduction:
        refuse(f"the criterion has reduction='{named}', and loss_reduction is '{reduction}'; give loss_reduction='{named}'")


def check(criterion, reduction: str, records, numbers, outputs_of) -> bool:
    """Rejects a criterion of (outputs, targets) that couples records, or reduces them in another way than is said. False if it
    could not be called with what the data set gives. outputs_of: numbers of records → the module's outputs."""
    if records.from_rows:
        return False
    for narrow in (False, True):
        if narrow:  # indices that the module takes may be too many for targets
            records.drawn.ranges = {}
        batch = records.whole(numbers)
        if not (isinstance(batch, (list, tuple)) and len(batch) == 2):
            return False
        outputs = tree_map(lambda y: y.detach().requires_grad_() if _is_float(y) else y, outputs_of(numbers))
        try:
            whole = criterion(outputs, batch[1])
            alone = [criterion(outputs_of([i]), records.whole([i])[1]) for i in numbers]
            break
        except CANNOT_CALL:
            continue
    else:
        return False
    whole, alone = whole.detach().double(), torch.stack([one.detach().double() for one in alone])
    size = 1e-3 * alone.abs().max().item() + 1e-12
    ways = [way for way, value in (("mean", alone.mean()), ("sum", alone.sum())) if (value - whole).abs().item() <= size]
    if whole.dim() == 0 and not ways or whole.dim() == 0 and not _gradients_agree(criterion, outputs, batch[1], ways):
        refuse("self-check: the criterion couples records: a record's loss or gradient in a batch is not what it is alone, so "
               "that no record's can be bounded. Give one that is a mean or sum of one number a record; divide by a public "
               "number, not by one of the batch")
    if whole.dim() == 0 and reduction not in ways:
        refuse(f"the criterion is a {ways[0]} over records, and loss_reduction is '{reduction}'; give "
               f"loss_reduction='{ways[0]}'")
    return True


def _is_float(y) -> bool:
    return isinstance(y, torch.Tensor) and y.is_floating_point()


def _gradients_agree(criterion, y, targets, ways) -> bool:
    """Where outputs and targets are tensors with the records first: gradients too are those of each record alone."""
    if not (_is_float(y) and isinstance(targets, torch.Tensor) and y.dim() and targets.dim() and len(y) == len(targets)):
        return True
    n = len(y)
    try:
        (whole,) = torch.autograd.grad(criterion(y, targets), y)
        alone = torch.cat([torch.autograd.grad(criterion(y[i:i + 1], targets[i:i + 1]), y)[0][i:i + 1] for i in range(n)])
    except CANNOT_CALL:
        return True
    return any(torch.allclose((n if way == "mean" else 1) * whole, alone, rtol=1e-3, atol=1e-6 * alone.abs().max().item())
               for way in ways)
