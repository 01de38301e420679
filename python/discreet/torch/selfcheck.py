"""The start-up check: clipped sums of one small batch against autograd, record by record.

It works on a copy of the module, in float64 where the module can, in training mode with dropout off, and with random numbers
in place of the records' (indices stay as they are). It also learns how the rows of each layer belong to records, and sees
whether the module remembers them.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from discreet.torch.clipper import Clipper
from discreet.torch.errors import refuse

RECORDS = 3
CANNOT_CALL = (TypeError, RuntimeError, LookupError, ValueError, AttributeError)
TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-3}


class _Sink:
    """Clips to the median norm, so that some records are and some are not."""

    def take_norms(self, norms: torch.Tensor) -> torch.Tensor:
        self.norms = norms
        return (norms.median() / norms.clamp(min=1e-300)).clamp(max=1)


def run(module: nn.Module, data_loader, example_inputs=None) -> dict[str, str]:
    """Refuses a module whose clipped gradients are wrong, naming the layer; else how rows belong to records, by layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        args, kwargs = _inputs(module, data_loader, example_inputs)
        Clipper(module, {name: 0 for name, _ in module.named_parameters()}).remove()  # says what cannot be served
        wide = [_to(args, torch.float64), _to(kwargs, torch.float64)]
        try:
            return _compare(_as_in_training(copy.deepcopy(module).double(), *wide), *wide)
        except RuntimeError as error:
            if "use_reentrant" in str(error):
                refuse("checkpoint(use_reentrant=True) begins a backward pass inside another, of which norms would be "
                       "parts; give use_reentrant=False")
            if not _of_precision(error):
                raise
        return _compare(_as_in_training(copy.deepcopy(module), args, kwargs), args, kwargs)


def _as_in_training(module, args, kwargs):
    """The module in training mode, without dropout; in eval mode if it draws other random numbers."""
    module.train()
    quiet = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm, nn.RNNBase, nn.MultiheadAttention)
    for below in module.modules():
        if isinstance(below, quiet):
            below.training = False
    constant = {id(p): p for p in module.parameters()}

    def once(seed, inputs):
        twin = copy.deepcopy(module, dict(constant))
        torch.manual_seed(seed)
        out = twin(*inputs[0], **inputs[1])
        return [y for y in tree_leaves(out) if isinstance(y, torch.Tensor)], dict(twin.named_buffers())

    def other(x):
        if not isinstance(x, torch.Tensor):
            return x
        return torch.randn_like(x) if x.is_floating_point() else x[:1].expand_as(x)

    try:
        out, kept = once(0, (args, kwargs))
        again, _ = once(1, (args, kwargs))
        _, of_others = once(0, tree_map(other, (args, kwargs)))
    except CANNOT_CALL as error:
        if _of_precision(error):
            raise
        return module.eval()  # it has other arguments in training, or in general
    for name, b in kept.items():
        if not _equal(b, of_others.get(name)):
            refuse(f"self-check: the buffer {name} changes with the records that the module sees, and nothing noises it; a "
                   "checkpoint of the module would hold it. Use a layer that does not remember records, or keep it in eval "
                   "mode")
    return module if all(map(_equal, out, again)) else module.eval()


def _equal(a, b) -> bool:
    if b is None or a.shape != b.shape:
        return False
    return torch.equal(a, b) or (a.is_floating_point() and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))


def _of_precision(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and ("dtype" in str(error) or "scalar type" in str(error))


def check_criterion(module: nn.Module, data_loader, criterion, reduction: str, example_inputs=None) -> None:
    """Refuses a criterion of (outputs, targets) that couples records, or reduces them in another way than is said."""
    named = getattr(criterion, "reduction", reduction)
    if named in ("mean", "sum") and named != reduction:
        refuse(f"the criterion has reduction='{named}', and loss_reduction is '{reduction}'; give loss_reduction='{named}'")
    count = min(RECORDS, len(data_loader.dataset))
    example = data_loader.collate_fn([data_loader.dataset[i] for i in range(count)])
    if not (isinstance(example, (list, tuple)) and len(example) == 2 and isinstance(example[1], torch.Tensor)):
        return
    targets = example[1]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        args, kwargs = _inputs(module, data_loader, example_inputs)
        y = copy.deepcopy(module).eval()(*args, **kwargs)
    if not isinstance(y, torch.Tensor) or not len(y) == len(targets) == RECORDS:
        return
    y = y.requires_grad_()
    try:
        (whole,) = torch.autograd.grad(criterion(y, targets), y)
        alone = torch.cat([torch.autograd.grad(criterion(y[i:i + 1], targets[i:i + 1]), y)[0][i:i + 1]
                           for i in range(RECORDS)])
    except CANNOT_CALL:
        return  # it is called with something else
    for way, factor in (("mean", RECORDS), ("sum", 1)):
        if torch.allclose(factor * whole, alone, rtol=1e-3, atol=1e-6 * alone.abs().max().item()):
            if way != reduction:
                refuse(f"the criterion is a {way} over records, and loss_reduction is '{reduction}'; give "
                       f"loss_reduction='{way}'")
            return
    refuse("self-check: the criterion couples records: a record's gradient in a batch is not what it is alone, so that no "
           "record's can be bounded. Give one that is a mean or sum of one number a record; divide by a public number, not by "
           "one of the batch")


def _inputs(module, data_loader, example):
    if example is None:
        count = min(RECORDS, len(data_loader.dataset))
        example = data_loader.collate_fn([data_loader.dataset[i] for i in range(count)])
        if isinstance(example, (list, tuple)):
            example = example[0]
    if isinstance(example, Mapping):
        takes = inspect.signature(module.forward).parameters
        anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes.values())
        args, kwargs = (), {key: x for key, x in example.items() if anything or key in takes}
    else:
        args, kwargs = tuple(example) if isinstance(example, (list, tuple)) else (example,), {}
    few = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    if not few or any(x.dim() == 0 or x.shape[0] < RECORDS for x in few):
        refuse(f"the self-check needs inputs of {RECORDS} records; give example_inputs=(…), the module's arguments")
    public = lambda x: torch.randn_like(x) if x.is_floating_point() else x  # noqa: E731
    return tree_map(lambda x: public(x[:RECORDS]) if isinstance(x, torch.Tensor) else x, (args, kwargs))


def _to(tree, dtype):
    return tree_map(lambda x: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, tree)


def _rows(tree, rows):
    return tree_map(lambda x: x[rows] if isinstance(x, torch.Tensor) else x, tree)


def _loss(outputs, n: int, weights: torch.Tensor) -> torch.Tensor:
    total = torch.zeros((), dtype=weights.dtype)
    for y in tree_leaves(outputs):
        if isinstance(y, torch.Tensor) and y.is_floating_point() and y.dim() > 0 and y.shape[0] == n:
            y = y.reshape(n, -1)
            ramp = torch.sin(torch.arange(1, y.shape[1] + 1, dtype=y.dtype))
            total = total + (weights * ((y * ramp).sum(1) + 0.1 * y.square().sum(1))).sum()
    return total


def _compare(module, args, kwargs) -> dict[str, str]:
    clipper = Clipper(module, {name: 0 for name, p in module.named_parameters() if p.requires_grad}, mean=False)
    clipper.probed, clipper.sink = True, _Sink()
    dtype = next(iter(clipper.parameters.values())).dtype
    try:
        leading = _probe(module, clipper, args, kwargs)
    except CANNOT_CALL as error:
        if _of_precision(error):
            raise
        refuse(f"the self-check could not call the module with what the data set gives ({error}); give "
               "example_inputs=(…), the module's arguments for at least 3 records, or self_check=False")
    for site in clipper.sites:
        site.leading = leading.get(site.name, "records")
    names, parameters = list(clipper.parameters), list(clipper.parameters.values())
    weights = torch.tensor([float((i + 1) ** 2) for i in range(RECORDS)], dtype=dtype)
    reference: list[list[torch.Tensor]] = []
    with clipper.inactive():
        for hook in clipper._hooks:
            hook.remove()
        for i in range(RECORDS):
            rows = slice(i, i + 1)
            try:
                outputs = module(*_rows(args, rows), **_rows(kwargs, rows))
            except (RuntimeError, ValueError) as error:
                refuse(f"self-check: the module cannot be called with one record alone ({error}); does it mix the records of a "
                       "batch, as batch normalisation does?")
            loss = _loss(outputs, 1, weights[rows])
            if not loss.requires_grad:
                refuse("the self-check found no output that depends on trained parameters; give example_inputs=(…), or "
                       "self_check=False")
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            reference.append([torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients)])
    clipper.records = RECORDS
    _loss(module(*args, **kwargs), RECORDS, weights).backward()
    own = clipper.sink.norms[:, 0]
    scales = clipper.sink.take_norms(clipper.sink.norms)[:, 0]
    for k, name in enumerate(names):
        exact = sum(scales[i].to(dtype) * reference[i][k] for i in range(RECORDS))
        got = clipper.buffers.get(name, torch.zeros_like(exact)).view(exact.shape)
        size = max(reference[i][k].norm().item() for i in range(RECORDS))
        if (got - exact).norm().item() > TOLERANCE[dtype] * max(size, 1e-12):
            refuse(f"self-check: the clipped gradient of {name} is not that of autograd, record by record. Either its "
                   "layer mixes records of a batch, or its rows are not the records, or its rule is wrong; "
                   f"relative difference {(got - exact).norm().item() / max(size, 1e-12):.2g}")
    norms = torch.stack([torch.sqrt(sum(g.double().square().sum() for g in one)) for one in reference])
    if not torch.allclose(own, norms, rtol=TOLERANCE[dtype]) or (own < norms * (1 - 1e-6)).any():
        refuse("self-check: the norms of records are not those of autograd")
    return leading


def _probe(module, clipper, args, kwargs) -> dict[str, str]:
    seen: list[dict] = []
    ranks: dict[str, int] = {}
    for n in (RECORDS, RECORDS - 1):
        lengths: dict = {}

        def watch(site, inputs, lengths=lengths):
            lengths.setdefault(site.name, set()).add(inputs[0].shape[0])
            ranks[site.name] = inputs[0].dim() if isinstance(site.module, nn.Embedding) else 0
        clipper.watch, clipper.records = watch, n
        module(*_rows(args, slice(0, n)), **_rows(kwargs, slice(0, n)))
        seen.append(lengths)
    clipper.watch = None
    clipper.uses.clear()
    leading = {}
    for name, many in seen[0].items():
        few = seen[1][name]
        if many == {RECORDS} and few == {RECORDS - 1}:
            leading[name] = "records"
        elif len(many) == len(few) == 1 and min(many) * (RECORDS - 1) == min(few) * RECORDS:
            leading[name] = "multiple"
        elif many == few and (many == {1} or ranks[name] == 1):
            leading[name] = "broadcast"
        else:
            refuse(f"layer {name} sees {sorted(many)} rows for {RECORDS} records and {sorted(few)} for {RECORDS - 1}; its "
                   "first dimension must be the records")
    return leading
