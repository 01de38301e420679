"""The judge of discreet.torch: what a release should be, by plain autograd, and what the engine released.

Nothing here uses the library except PrivacyEngine itself (the self-check is only kept from running again). A case is judged by
what leaves the engine: noise is off, every record is in every batch (batch size = declared size), the learning rate is 0, and
what the mechanism released, times the batch size, is the clipped sum S. The judge takes it in float64, before it is rounded to
the type of the parameters: that rounding comes after the noise and is post-processing, but without noise it would move a sum of
512 C by up to 1e-5 C. It also checks that `p.grad` is that value, rounded. S is compared with
- the sum of every record's gradient alone, in float64, clipped to C (the engine is exact);
- S without one record (the move, at most C), or with that record replaced (at most 2 C) where the model draws random numbers;
- S of a second step, the state and the evaluation after a first step with another record (memory; they must be equal).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from unittest import mock

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader, Dataset, default_collate

import discreet
from discreet.torch import PrivacyEngine
from discreet.torch.selfcheck import check as selfcheck

# MOVE: beyond the bound, in units of C. EXACT: distance of S from the oracle, in units of C and per record.
MOVE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 1e-5}
EXACT = {torch.float64: 1e-6, torch.float32: 2e-4, torch.bfloat16: 5e-2}


@dataclasses.dataclass
class Case:
    """make: a new module. records: count → a list of (input, weight); an input is a tensor, a tuple of the module's
    arguments, or a dictionary of them. losses: (output, weights) → one loss a record, or a scalar that is the mean."""

    name: str
    make: Callable[[], nn.Module]
    records: Callable[[int], list]
    losses: Callable | None = None
    collate: Callable = default_collate
    dtype: torch.dtype = torch.float64
    reference: torch.dtype = torch.float64  # of the oracle
    autocast: bool = False
    random: bool = False  # draws random numbers in training
    alike: bool = True  # the oracle is the same sum; not if a mask follows the strides of a tensor, or clipping is not flat
    reduction: str = "mean"
    bound: float | None = None  # of C; the median norm times `relative` without it
    relative: float = 0.5
    options: dict = dataclasses.field(default_factory=dict)
    seed: int = 0
    size: int | None = None  # records, where it takes many

    def module(self) -> nn.Module:
        torch.manual_seed(self.seed)
        return self.make().to(self.dtype).train()

    def loss(self, module: nn.Module, batch):
        inputs, weights = batch
        amp = torch.autocast("cpu", torch.bfloat16) if self.autocast else contextlib.nullcontext()
        with amp:
            if isinstance(inputs, dict):
                out = module(**inputs)
            else:
                out = module(*inputs) if isinstance(inputs, (tuple, list)) else module(inputs)
            losses = (self.losses or ramp_losses)(out, weights)
        return losses


@dataclasses.dataclass
class Verdict:
    """The result of a case. rejected: the sentence. crashed: an exception that is not a rejection."""

    name: str
    rejected: str = ""
    crashed: str = ""
    away: float = 0.0  # from the oracle: |S - S_ref| / (C n)
    move: float = 0.0  # one record left out, or half of the move of a replaced one
    memory: float = 0.0  # of a first step in the second
    faults: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        return not self.rejected and not self.crashed


class Engine(PrivacyEngine):
    """Keeps what it releases as it was before its last rounding. `_give` is where parameters get their gradients."""

    released: dict[str, torch.Tensor] = {}

    def _give(self, noisy: dict, rounded: dict) -> None:
        super()._give(noisy, rounded)
        for name, p in self.module.named_parameters():
            wide = noisy[name].view_as(p).to(torch.float32 if rounded else torch.float64) if p.requires_grad else None
            if wide is not None and not torch.equal(p.grad, wide.to(p.dtype)):
                raise AssertionError(f"{name}.grad is not what was released")
        self.released = {name: x.clone() for name, x in noisy.items()}


class Records(Dataset):
    def __init__(self, items: list) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int):
        return self.items[i]


def ramp_losses(out, weights: torch.Tensor) -> torch.Tensor:
    """A loss that sees every number of the output: [records]. A scalar output is the loss."""
    total = 0
    for y in tree_leaves(out):
        if not isinstance(y, torch.Tensor) or not y.is_floating_point():
            continue
        if y.dim() == 0:
            return y
        y = y.reshape(len(weights), -1)
        ramp = torch.cos(torch.arange(y.shape[1], dtype=y.dtype))
        total = total + weights.to(y.dtype) * ((y * ramp).sum(1) + 0.3 * y.square().sum(1))
    return total


def as_type(tree, dtype):
    return tree_map(lambda x: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, tree)


def flat(gradients, parameters) -> torch.Tensor:
    return torch.cat([torch.zeros(p.numel(), dtype=torch.float64) if g is None else g.detach().double().flatten()
                      for g, p in zip(gradients, parameters)])


def trained(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def right_when_alone(module: nn.Module) -> nn.Module:
    """PyTorch 2.13 returns wrong gradients of these layers for one record, if the gradient's strides have the channels last."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._NormBase):
            layer.register_forward_hook(lambda _, __, y: y.register_hook(lambda g: g.contiguous()) and None)
    return module


def gradients_alone(case: Case, records: list, in_turn: bool = False) -> torch.Tensor:
    """[n, parameters] in float64. Every record alone; where the model draws random numbers, its part of the whole batch with
    the numbers that the engine draws. Records of equal content (same `id` of their input) are computed once.
    in_turn: alone too where it draws, one record's numbers after the other's, as in a module that runs record by record."""
    plain = dataclasses.replace(case, autocast=False)
    module = right_when_alone(plain.module().to(case.reference))
    parameters, out, known = trained(module), [], {}
    torch.manual_seed(1)
    if case.random and not in_turn:
        losses = plain.loss(module, as_type(case.collate(records), case.reference))
        return torch.stack([flat(torch.autograd.grad(one, parameters, retain_graph=True, allow_unused=True), parameters)
                            for one in losses])
    state = {key: x.clone() for key, x in module.named_buffers()}
    for record in records:
        key = id(tree_leaves(record)[0])
        if in_turn or key not in known:
            for name, x in module.named_buffers():
                x.copy_(state[name])
            loss = plain.loss(module, as_type(case.collate([record]), case.reference)).mean()
            known[key] = flat(torch.autograd.grad(loss, parameters, allow_unused=True), parameters)
        out.append(known[key])
    return torch.stack(out)


def clipped_sum(gradients: torch.Tensor, bound: float) -> torch.Tensor:
    norms = gradients.norm(dim=1).clamp(min=1e-300)
    return (bound / norms).clamp(max=1) @ gradients


class OneCheck:
    """Within, the self-check runs for the first engine of a case, and every other one takes over what it found: it sees the
    module and records that it makes up in the shape of the first, and both are the same for all engines of the case."""

    def __enter__(self):
        check, found = selfcheck.run, []

        def once(*args, **options):
            if not found:
                found.append(check(*args, **options))
            return found[0]
        self.patch = mock.patch.object(selfcheck, "run", once)
        self.patch.start()
        return self

    def __exit__(self, *_):
        self.patch.stop()


def released(case: Case, records: list, size: int, bound: float, second: list | None = None) -> list[torch.Tensor]:
    """S of one step. If `second` has the records of another: also the first step's state and evaluation of `second`, and its S.
    Raises what the engine raises."""
    module = case.module()
    dataset = Records([as_type(record, case.dtype) for record in records])
    options = dict(case.options)
    share = options.get("gradient_accumulation_steps", 1)
    loader = DataLoader(dataset, batch_size=size // share, shuffle=True, collate_fn=case.collate)
    optimizer = torch.optim.SGD(trained(module), lr=0.0)
    engine = Engine(insecure_seed=1)
    module, optimizer, private = engine.make_private(
        module=module, optimizer=optimizer, data_loader=loader, noise_multiplier=0, max_grad_norm=bound,
        declared_size=size // share * share, loss_reduction=case.reduction, **options)

    def step(items: list) -> torch.Tensor:
        dataset.items = [as_type(record, case.dtype) for record in items]
        for batch in private:
            torch.manual_seed(1)
            optimizer.zero_grad()
            losses = case.loss(module, batch)
            (losses.sum() if case.reduction == "sum" else losses.mean()).backward()
            optimizer.step()
        of = {id(p): name for name, p in module.named_parameters()}
        return flat([engine.released[of[id(p)]] for p in trained(module)], trained(module)) * (size // share * share)

    found = [step(records)]
    if second is not None:
        found.append(shown(case, module, case.collate([as_type(record, case.dtype) for record in second])))
        found.append(step(second))
    return found


def shown(case: Case, module: nn.Module, batch) -> torch.Tensor:
    """What a checkpoint holds, and what the model says in evaluation; the weights were not changed."""
    state = [x for x in module.state_dict().values() if x.is_floating_point()]
    module.eval()
    torch.manual_seed(1)
    with torch.no_grad():
        out = case.loss(module, batch)
    module.train()
    return torch.cat([x.double().flatten() for x in [*state, out]])


def judge(case: Case, n: int, out: int | None = None, memory: bool = False) -> Verdict:
    """out: the record that is left out; the last one if not given."""
    verdict = Verdict(case.name)
    records = case.records(n)
    out = n - 1 if out is None else out
    rest = records[:out] + records[out + 1:]
    other = records[:out] + [records[0 if out else 1]] + records[out + 1:]
    try:
        gradients = gradients_alone(case, records)
        bound = case.bound or case.relative * gradients.norm(dim=1).median().item()
    except Exception as error:  # a coupling may need company
        gradients, bound = None, case.bound or 1.0
        verdict.faults = (f"the oracle fails: {error}",)
    try:
        with OneCheck():
            got, *after = released(case, records, n, bound, other if memory else None)
            if gradients is not None and case.alike:
                verdict.away = (got - clipped_sum(gradients, bound)).norm().item() / (bound * n)
            if case.random and case.alike and verdict.away > EXACT[case.dtype]:
                in_turn = gradients_alone(case, records, in_turn=True)
                verdict.away = min(verdict.away, (got - clipped_sum(in_turn, bound)).norm().item() / (bound * n))
            replaced, *without = released(case, other, n, bound, other if memory else None) if case.random or memory else [None]
            if case.random:
                verdict.move = (got - replaced).norm().item() / bound / 2
            else:
                verdict.move = (got - released(case, rest, n, bound)[0]).norm().item() / bound
        if memory:
            verdict.memory = max((after[0] - without[0]).abs().max().item(), (after[1] - without[1]).norm().item() / bound)
    except discreet.Error as error:
        verdict.rejected = str(error)
        return verdict
    except Exception as error:
        verdict.crashed = f"{type(error).__name__}: {error}"
        return verdict
    precision = torch.bfloat16 if case.autocast else case.dtype
    faults = list(verdict.faults)
    if not verdict.away <= EXACT[precision]:
        faults.append(f"the clipped sum is away by {verdict.away:.2g} C a record")
    if not verdict.move <= 1 + MOVE[precision]:
        faults.append(f"one record moves it by {verdict.move:.8g} C")
    if not verdict.memory <= MOVE[precision]:
        faults.append(f"a first step moves what comes after it by {verdict.memory:.2g}")
    verdict.faults = tuple(faults)
    return verdict


def rejection(case: Case, n: int = 6) -> Verdict:
    """Of a case that must be rejected: make_private and one step."""
    verdict = Verdict(case.name)
    try:
        released(case, case.records(n), n, case.bound or 1.0)
    except discreet.Error as error:
        verdict.rejected = str(error)
    except Exception as error:
        verdict.crashed = f"{type(error).__name__}: {error}"
    return verdict
