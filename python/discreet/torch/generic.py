"""Modules without a rule: every record passes through the module separately, already in the forward pass, so that its outputs
cannot mix records. The backward pass runs the records again for the gradients of their parameters, with the random numbers of
the forward pass, and rejects a module whose second run differs from its first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import checkpoint
from torch.utils._pytree import tree_flatten, tree_unflatten

from discreet.errors import Error
from discreet.torch.errors import layer, refuse
from discreet.torch.pieces import Explicit
from discreet.torch.rows import ONE
from discreet.torch.selfcheck import draws
from discreet.torch.sites import Leading, Site, constant

if TYPE_CHECKING:
    from discreet.torch.clipper import Clipper

CANNOT_BATCH = (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError, LookupError)
PLAIN = (type(None), bool, int, float, str)


def wide(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


class Pass:
    """The data of a forward pass that the backward pass needs."""

    def __init__(self, leaves: list[Any], spec: Any, held: dict[int, tuple[int, int]], chunk: int | None,
                 module: nn.Module) -> None:
        self.leaves, self.spec, self.held, self.chunk = leaves, spec, held, chunk
        # Every record starts with this state, in both runs.
        self.buffers = {"inner." + key: x.detach().clone() for key, x in module.named_buffers()}
        self.states: list[dict[str, torch.Tensor]] = []  # after records of the forward pass
        self.draws = draws.state()
        self.autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        self.outputs: list[torch.Tensor] = []
        self.drew = False  # from the default generator

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        with draws.kept(), torch.autocast("cpu", self.autocast[1], enabled=self.autocast[0]):
            draws.restore(self.draws)
            yield


@contextlib.contextmanager
def nothing_is_checkpointed() -> Iterator[None]:
    """Within this context, checkpoint(use_reentrant=False) only calls its function. Otherwise it would run it again in the
    backward pass, where parameters are no longer constants; a second run forms the gradients in any case."""
    module: Any = checkpoint
    before = module._checkpoint_without_reentrant_generator
    module._checkpoint_without_reentrant_generator = lambda *_, **__: (yield)
    try:
        yield
    finally:
        module._checkpoint_without_reentrant_generator = before


class Inner(nn.Module):
    """The module without its hooks, which run around the site, on all records."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.inner, self.site = site.module, site

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.site.original(*args, **kwargs)


class GenericSite(Site):
    """Any module, with everything below it."""

    def __init__(self, clipper: Clipper, name: str, module: nn.Module) -> None:
        own = {key: p for key, p in module.named_parameters() if p.requires_grad}
        super().__init__(clipper, name, module, own)
        self.layouts: Sequence[Leading] = []  # by tensor among the arguments
        self.recurrent = isinstance(module, nn.RNNBase)
        below = [one for one in module.modules() if isinstance(one, nn.RNNBase)]
        self.by_vmap = not below  # vmap has no batching rule for them
        if isinstance(module, nn.RNNBase) and module.dropout > 0:
            refuse(f"{name or 'the module'} is a {type(module).__name__} with dropout, whose draws cannot be repeated; set it "
                   "to 0, or use Dropout layers between layers")

    def learn(self, leading: Any) -> None:
        self.layouts = leading

    def dims(self, count: int) -> list[int]:
        """The record dimension of each of `count` inputs or outputs."""
        if not isinstance(self.module, nn.RNNBase):
            return [0] * count
        return [0 if self.module.batch_first else 1] + [1] * (count - 1)

    def named(self) -> str:
        return f"{layer(self.name)} ({type(self.module).__name__})"

    # ---------------------------------------------------------------- the forward pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        n = self.clipper.records
        run = Pass(leaves, spec, self.records_of(leaves), self.chunk(n), self.module)
        outputs, out_spec, places = self.as_a_whole(args, kwargs) if self.recurrent or n == 0 else self.by_record_(run, n)
        run.outputs = [y.detach() for y in outputs]
        run.drew = not torch.equal(run.draws[0], torch.get_rng_state())
        self.clipper.used(self)
        tapped = list(TapAll.apply(self, run, self.clipper.anchor, *outputs))
        found = iter(tapped)
        return tree_unflatten([next(found) if place is TENSOR else place for place in places], out_spec)

    def records_of(self, leaves: Sequence[Any]) -> dict[int, tuple[int, int]]:
        """By place among the arguments: the record dimension, and the number of rows of each record."""
        n = self.clipper.records
        held: dict[int, tuple[int, int]] = {}
        tensors = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        dims = self.dims(len(tensors))
        for place, (i, dim) in enumerate(zip(tensors, dims)):
            x = leaves[i]
            layout = self.layouts[place] if place < len(self.layouts) else ONE
            shared = isinstance(layout, str)  # BROADCAST
            if shared and not (x.requires_grad and x.dim() > dim and x.shape[dim] == n):
                continue
            each = None if x.dim() <= dim else (ONE if isinstance(layout, str) else layout).of(
                x.shape[dim], n, self.clipper.shapes)
            if each is None or n == 0 and x.shape[dim] != 0:
                refuse(f"{self.named()} was called with a tensor of shape {list(x.shape)}, but the batch has {n} records; "
                       "put the records in the first dimension, or register a rule for it with register_grad_sampler")
            if not self.clipper.probed and n > 1 and n in x.shape[dim + 1:-1]:
                refuse(f"{self.named()} was called with a tensor of shape {list(x.shape)}, and the batch has {n} records: the "
                       "record dimension is ambiguous. Call make_private with self_check=True. Nothing was released")
            held[i] = dim, each
        return held

    def chunk(self, n: int) -> int | None:
        most = max(1, (1 << 24) // max(1, sum(p.numel() for p in self.parameters.values())))
        return None if most >= n else most

    def as_a_whole(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[torch.Tensor], Any, list[Any]]:
        """Runs all records at once: a recurrent layer does not mix records, and an empty batch has none."""
        with contextlib.ExitStack() as stack:
            for below in self.module.modules():
                stack.enter_context(constant(below))
            stack.enter_context(self.clipper.inactive())
            y = self.original(*args, **kwargs)
        outputs, out_spec = tree_flatten(y)
        return self.separated(outputs), out_spec, self.places(outputs)

    def separated(self, outputs: Sequence[Any]) -> list[torch.Tensor]:
        for y in outputs:
            if isinstance(y, torch.Tensor) and y.dim() == 0:
                refuse(f"{self.named()} returns a scalar, so each record's part is unknown. Return one number per record, or "
                       "compute the loss outside the module (for Hugging Face: omit the labels from its inputs)")
            if not isinstance(y, (torch.Tensor, *PLAIN)):
                refuse(f"{self.named()} returns a {type(y).__name__}; return tensors with the records first, or register a "
                       "rule for it with register_grad_sampler. For Hugging Face: use_cache=False")
        return [y for y in outputs if isinstance(y, torch.Tensor)]

    @staticmethod
    def places(outputs: Sequence[Any]) -> list[Any]:
        return [TENSOR if isinstance(y, torch.Tensor) else y for y in outputs]

    def blocks(self, run: Pass, n: int) -> list[torch.Tensor]:
        """Every tensor with records as [records, …], with the rows of each record at the record dimension."""
        return [run.leaves[i].unflatten(dim, (n, each)).movedim(dim, 0) for i, (dim, each) in run.held.items()]

    def function(self, run: Pass, found: list[Any]) -> Callable[..., tuple[torch.Tensor, ...]]:
        """(parameters, blocks of one record) → its outputs; found: receives their structure."""
        def one(parameters: dict[str, torch.Tensor], *blocks: torch.Tensor) -> tuple[torch.Tensor, ...]:
            leaves = list(run.leaves)
            for i, x in zip(run.held, blocks):
                leaves[i] = x
            args, kwargs = tree_unflatten(leaves, run.spec)
            held = parameters | {key: x.clone() for key, x in run.buffers.items()}
            with self.clipper.inactive(), nothing_is_checkpointed():
                y = torch.func.functional_call(Inner(self), held, args, kwargs)
            run.states.append({key: held[key] for key in run.buffers})
            outputs, out_spec = tree_flatten(y)
            found[:] = [out_spec, self.places(outputs)]
            return tuple(self.separated(outputs))
        return one

    def constants(self) -> dict[str, torch.Tensor]:
        return {"inner." + key: p.detach() for key, p in self.parameters.items()}

    def by_record_(self, run: Pass, n: int) -> tuple[list[torch.Tensor], Any, list[Any]]:
        found: list[Any] = []
        one, parameters, blocks = self.function(run, found), self.constants(), self.blocks(run, n)
        outputs = None
        if self.by_vmap:
            try:
                function = self.as_differentiated(one) if run.autocast[0] else one
                outputs = torch.func.vmap(function, in_dims=(None, *[0] * len(blocks)), randomness="different",
                                          chunk_size=run.chunk)(parameters, *blocks)
                self.take_state(run)
            except Error:
                raise
            except CANNOT_BATCH:
                self.by_vmap = False  # an operation without a batching rule, or a branch on values
                draws.restore(run.draws)
                run.states.clear()
        if outputs is None:
            outputs = [torch.stack(parts) for parts in zip(*(one(parameters, *(x[i] for x in blocks)) for i in range(n)))]
            self.take_state(run)
        dims = self.dims(len(outputs))
        out_spec, places = found
        return [y.movedim(0, dim).flatten(dim, dim + 1) for y, dim in zip(outputs, dims)], out_spec, places

    def take_state(self, run: Pass) -> None:
        """Takes over the buffers after the pass, such as those of a power iteration or a counter: equal for all records."""
        buffers = dict(self.module.named_buffers())
        for key, before in run.buffers.items():
            after = run.states[0][key]
            if after.shape != before.shape or not all(torch.equal(after, state[key]) for state in run.states):
                refuse(f"{self.named()}: its buffer {key.removeprefix('inner.')} depends on the records, without noise. Use a "
                       "layer that does not store records, or keep it in eval mode")
            buffers[key.removeprefix("inner.")].copy_(after.detach())
        run.states.clear()

    @staticmethod
    def as_differentiated(one: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, differentiated: autocast chooses other precisions outside torch.func's differentiation, and the
        backward pass must reproduce the forward pass."""
        nothing = torch.zeros(())
        differentiated = torch.func.grad(lambda zero, *arguments: (zero * 1.0, one(*arguments)), has_aux=True)
        return lambda *arguments: differentiated(nothing, *arguments)[1]

    # ---------------------------------------------------------------- the backward pass

    def arrived_all(self, run: Pass, gs: Sequence[torch.Tensor]) -> None:
        n = self.clipper.records
        for g in gs:
            self.clipper.check_precision(self, g)
        if n == 0:
            self.clipper.arrived_pieces(self, {}, 0)
            return
        run.leaves = [x.detach() if isinstance(x, torch.Tensor) else x for x in run.leaves]
        dims = self.dims(len(gs))
        for g, dim in zip(gs, dims):
            if g.dim() <= dim or g.shape[dim] % n:
                refuse(f"{self.named()} returns a tensor of shape {list(g.shape)}, but the batch has {n} records; register a "
                       "rule for it with register_grad_sampler")
        count = len(run.held)
        one = self.function(run, [])

        def loss(parameters: dict[str, torch.Tensor], *both: torch.Tensor) -> tuple[Any, tuple[torch.Tensor, ...]]:
            outputs = one(parameters, *both[:count])
            return sum((wide(y) * wide(g)).sum() for y, g in zip(outputs, both[count:])), outputs

        both = self.blocks(run, n)
        both += [g.unflatten(dim, (n, g.shape[dim] // n)).movedim(dim, 0) for g, dim in zip(gs, dims)]
        with run.again():
            gradients, outputs = self.gradients(loss, both, n, run)
            run.states.clear()
        for y, before, dim in zip(outputs, run.outputs, dims):
            y = y.movedim(0, dim).flatten(dim, dim + 1)
            if not _same(y, before):
                self.clipper.failed()
                refuse(f"{self.named()} has no rule, and two runs on the same records give different results: its random "
                       "numbers or its state cannot be repeated. Draw random numbers with PyTorch's default generator. Nothing "
                       "was released", "INVALID_GRADIENT")
        self.clipper.arrived_pieces(self, {key.removeprefix("inner."): Explicit(wide(x))
                                            for key, x in gradients.items()}, n)

    def gradients(self, loss: Callable[..., Any], both: Sequence[torch.Tensor], n: int, run: Pass) -> tuple[
            dict[str, torch.Tensor], Sequence[torch.Tensor]]:
        parameters = self.constants()
        if self.by_vmap:
            try:
                function = torch.func.grad(loss, has_aux=True)
                gradients, outputs = torch.func.vmap(function, in_dims=(None, *[0] * len(both)), randomness="different",
                                                     chunk_size=run.chunk)(parameters, *both)
                return gradients, outputs
            except Error:
                raise
            except CANNOT_BATCH:
                if run.drew:
                    self.clipper.unbatched = self.name
                    refuse(f"{self.named()} has no rule, and PyTorch cannot form its gradients for all records at once with "
                           "these random numbers; register a rule for it with register_grad_sampler")
                self.by_vmap = False
        gradients = {key: p.new_empty(n, *p.shape) for key, p in parameters.items()}
        outputs = []
        for i in range(n):
            with torch.enable_grad():
                leaves = {key: p.clone().requires_grad_() for key, p in parameters.items()}
                total, y = loss(leaves, *(x[i] for x in both))
                used = list(leaves.values())
                one: Sequence[torch.Tensor | None] = (
                    torch.autograd.grad(total, used, allow_unused=True) if total.requires_grad else [None] * len(used))
            outputs.append([part.detach() for part in y])
            for key, gradient in zip(parameters, one):
                gradients[key][i] = 0 if gradient is None else gradient
        return gradients, [torch.stack(parts) for parts in zip(*outputs)]


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape:
        return False
    size = wide(b).abs().nan_to_num(0, 0, 0).amax().item() if b.numel() else 0.0
    exact = torch.finfo(b.dtype).eps if b.is_floating_point() else 0.0
    return torch.allclose(wide(a), wide(b), rtol=256 * exact, atol=256 * exact * size, equal_nan=True)


class _Tensor:
    """Marks the place of a tensor among outputs."""


TENSOR = _Tensor()


class TapAll(torch.autograd.Function):
    """As Tap, for several outputs. Clones them, because the inputs of a generic module must not change in place."""

    @staticmethod
    def forward(ctx: Any, site: GenericSite, run: Pass, anchor: torch.Tensor,
                *outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.site, ctx.run, ctx.piece = site, run, site.clipper.piece
        ctx.shapes = [(y.shape, y.dtype) for y in outputs]
        new = tuple(y.clone() for y in outputs)
        ctx.mark_non_differentiable(*(y for y in new if not y.is_floating_point()))
        return new

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *given: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        ctx.site.clipper.require_current(ctx.site, ctx.piece)
        gs = [torch.zeros(shape, dtype=dtype) if g is None else g for g, (shape, dtype) in zip(given, ctx.shapes)]
        ctx.site.arrived_all(ctx.run, gs)
        return None, None, None, *(g if g.is_floating_point() else None for g in gs)
