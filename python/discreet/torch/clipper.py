"""Collects the data of the backward pass and forms the sums of clipped gradients.

One backward pass is one piece of a step. At its end, the norms of its records are complete, the sink (the core's mechanism)
returns the scale of each record, and every parameter's weighted sum is added to its buffer, in float64. Buffers are not
`p.grad`, which only ever contains released values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import torch
from torch import nn
from torch.nn.utils import parametrize

from discreet.torch import rules
from discreet.torch.errors import layer, refuse
from discreet.torch.generic import GenericSite
from discreet.torch.layers import check_layer, modules_of, steady_gradients, watch_batch_norms
from discreet.torch.pieces import Column, Outer, Piece, Sum, core
from discreet.torch.secret_draws import SecretDraws
from discreet.torch.sites import AttentionSite, Forward, LayerSite, Site


class Sink(Protocol):
    def take_norms(self, norms: torch.Tensor) -> torch.Tensor:
        """Takes norms [records, parts] in float64 and returns scales of the same shape."""


class Clipper:
    """parts: by parameter name, the part of the clip plan that it belongs to. fused: clip a part as soon as the gradient of
    its layer is available. whole: names of modules that run record by record, with everything below them.
    """

    def __init__(self, module: nn.Module, parts: dict[str, int], *, fused: bool = False,
                 bounds: Callable[[], Sequence[float]] | None = None, mean: bool = True, batch: float = 1.0,
                 whole: Collection[str] = ()) -> None:
        self.module, self.mean, self.batch = module, mean, batch
        self.fused, self.bounds, self.whole = fused, bounds, whole
        self.anchor = torch.zeros(1, requires_grad=True)
        self.names = {id(p): name for name, p in module.named_parameters() if p.requires_grad}
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        wide = any(p.dtype == torch.float64 for p in self.parameters.values())
        self.dtype = torch.float64 if wide else torch.float32
        self.parts = parts
        self.part_count = max(parts.values(), default=0) + 1
        self.of_part: list[list[str]] = [[] for _ in range(self.part_count)]
        for name, part in parts.items():
            if name in self.parameters:
                self.of_part[part].append(name)
        self.active = True
        self.probed = False
        self.shapes: list[torch.Size] = []  # of the module's inputs, if row counts of layers depend on them
        self.piece = 0  # number of the current piece
        self.check: Callable[[], None] | None = None  # called at the start of a forward pass
        self.failed: Callable[[], None] = self.drop  # called when a backward pass fails
        self.records, self.absent = 0, False
        self.look = True  # search the next backward pass for half precision
        self.half = False  # half precision was found
        self.sink: Sink | None = None
        self.outside = ""  # a parameter that received a gradient outside its layer
        self.unbatched: str | None = None  # a module whose records must run one after the other
        self.buffers: dict[str, torch.Tensor] = {}
        for name, one in modules_of(module):
            check_layer(name, one)
        self.sites = list(self._sites())
        self._hooks: list[Any] = watch_batch_norms(module) + steady_gradients(module)
        try:
            for site in self.sites:
                site.install()
        except BaseException:
            self.remove()
            raise
        self._hooks += [p.register_hook(self._outside(name)) for name, p in self.parameters.items()]
        self.uses: dict[str, int] = {}
        self._clear()

    # ---------------------------------------------------------------- where parameters are used

    def _sites(self) -> Iterator[Site]:
        covered: set[int] = set()
        inside: list[str] = []
        for name, module in self.module.named_modules():
            if any(name == root or name.startswith(root + ".") or root == "" for root in inside):
                continue
            # Lists of parameters are never called: the parent module uses them.
            lists = [m for m in module.children() if isinstance(m, (nn.ParameterList, nn.ParameterDict))]
            own = [p for m in (module, *lists) for p in m.parameters(recurse=False) if p.requires_grad]
            attention = isinstance(module, nn.MultiheadAttention)
            if parametrize.is_parametrized(module) and any(p.requires_grad for p in module.parameters()):
                own = list(module.parameters())
            if name in self.whole:
                site: Site = GenericSite(self, name, module)
                covered |= {id(p) for p in site.parameters.values()}
                inside.append(name)
                yield site
                continue
            if isinstance(module, nn.MultiheadAttention) and any(p.requires_grad for p in module.parameters()):
                if type(module).forward is nn.MultiheadAttention.forward and AttentionSite.serves(module):
                    projections = AttentionSite(self, name, module)
                    covered |= {id(p) for s in (projections.inward, projections.outward) for p in s.parameters.values()}
                    inside.append(name)
                    yield projections
                    continue
            elif not own:
                continue
            rule = rules.rule_of(module)
            if rule is not None and not attention and not parametrize.is_parametrized(module) \
                    and rules.knows(rule, module):
                site = LayerSite(self, name, module, rule)
            else:
                site = GenericSite(self, name, module)
                inside.append(name)
            covered |= {id(p) for p in site.parameters.values()}
            yield site
        missing = [name for name, p in self.parameters.items() if id(p) not in covered]
        if missing:
            refuse(f"{', '.join(missing)}: these trained parameters belong to no layer whose gradients can be clipped; freeze "
                   "them (requires_grad_(False)), or register a rule with register_grad_sampler")

    @contextlib.contextmanager
    def inactive(self) -> Iterator[None]:
        before, self.active = self.active, False
        try:
            yield
        finally:
            self.active = before

    def learn(self, rows: Mapping[str, Any], looped: Collection[str] = ()) -> None:
        """Takes the result of the self-check. rows: by layer, how its rows belong to records. looped: modules whose records
        run one after the other."""
        self.probed = True
        for site in self.sites:
            if site.name in rows:
                site.learn(rows[site.name])
            if site.name in looped and isinstance(site, GenericSite):
                site.by_vmap = False
        if any(getattr(one, "products", ()) for layout in rows.values()
               for one in (layout if isinstance(layout, list) else [layout])):
            self._hooks.append(self.module.register_forward_pre_hook(Look(self), with_kwargs=True))

    def draw_secretly(self, draws: SecretDraws) -> None:
        draws.piece = lambda: self.piece if self.active else None
        self._hooks.append(self.module.register_forward_pre_hook(draws))

    def remove(self) -> Clipper:
        """Restores the module's own forwards."""
        for site in self.sites:
            if isinstance(vars(site.module).get("forward"), Forward):
                del site.module.forward
        for hook in self._hooks:
            hook.remove()
        return self

    # ---------------------------------------------------------------- the forward pass

    def begin(self, records: int) -> None:
        """The next passes have this many records; 0: one record that stands in for none and enters no sum."""
        self.records, self.absent, self.active = max(1, records), records == 0, True
        self.piece += 1
        self.uses.clear()

    def require_current(self, site: Site, piece: int) -> None:
        """Rejects a backward pass through a layer whose forward pass belongs to an earlier piece."""
        if piece != self.piece:
            self.failed()
            refuse(f"the backward pass reaches {layer(site.name)} in a graph from before the loader's last batch, so records "
                   "that this step did not draw would enter it. Call backward() for each batch before you take the next one. "
                   "Do not feed outputs or states of earlier batches into the next, not even detached ones: they contain "
                   "records that the step did not draw. Nothing was released",
                   "INVALID_GRADIENT")

    def used(self, site: Site) -> None:
        if not self.uses and self.check is not None:
            self.check()
        if not self.half and torch.is_autocast_enabled("cpu"):
            self._found_half(f"{layer(site.name)} is called under autocast to {torch.get_autocast_dtype('cpu')}")
        for p in site.parameters.values():
            name = self.names[id(p)]
            self.uses[name] = self.uses.get(name, 0) + 1

    def check_precision(self, site: Site, g: torch.Tensor) -> None:
        if g.dtype in HALF:
            self._found_half(f"the output gradient of {layer(site.name)} is {g.dtype}")

    def _found_half(self, found: str) -> None:
        if self.mean:
            refuse_half(found)
        self.half = True

    # ---------------------------------------------------------------- the backward pass

    def _clear(self) -> None:
        self._queued = False
        self._task = -1  # of the backward pass that queued _finish
        self._waiting: dict[str, list[Piece]] = {}  # pieces whose norm is not known yet
        self._done: dict[str, Piece] = {}  # pieces whose norm is in _norm2
        self._norm2: torch.Tensor | None = None  # [parts, records], float64
        self._rows: tuple[torch.Tensor, ...] = ()  # its rows
        self._summed: set[str] = set()

    def drop(self) -> None:
        """Discards the records of the step."""
        self.buffers.clear()
        self._clear()

    @property
    def unfinished(self) -> bool:
        """Outside backward passes: a pass failed and may have left the sums of some layers."""
        return self._queued

    def arrived(self, site: Site, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> None:
        self.arrived_pieces(site, site.pieces(inputs, g) if g.shape[0] else {}, g.shape[0])

    def arrived_pieces(self, site: Site, pieces: Mapping[str, Piece], records: int) -> None:
        task = torch._C._current_graph_task_id()
        if self._queued and task != self._task:
            self.failed()
            refuse("a backward pass started inside another one, so its norms would be incomplete. With checkpointing, use "
                   "use_reentrant=False. If the previous backward pass failed, call optimizer.zero_grad() before backward()")
        if not self._queued:
            _require_exact_products()
            if self.look and not self.half:
                self.look = False
                found = _half_below(torch._C._current_autograd_node())
                if found:
                    self._found_half(found)
            self._queued, self._task = True, task
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        with torch.no_grad():
            fresh: dict[str, Piece] = {}
            for key, piece in pieces.items():
                name = self.names[id(site.parameters[key])]
                if name in self._done or name in self._summed:
                    refuse(f"{name} was used again while its gradient was computed; if a layer is used several times, use it "
                           "outside the checkpointed region")
                if self.uses.get(name, 0) > 1:
                    self._waiting.setdefault(name, []).append(piece)
                else:
                    fresh[name] = piece
            self._add_norms(fresh)
            self._done |= fresh
            if self.fused and fresh and not self._waiting:
                self._sum_now(fresh)

    def _outside(self, name: str) -> Callable[[torch.Tensor], None]:
        def hook(_: torch.Tensor) -> None:
            if self.active:
                self.outside = name
                refuse(f"{name} received a gradient outside its layer, which is not clipped: it is used directly, as in a "
                       "penalty on weights (use the optimizer's weight_decay instead) or a functional call. Nothing was "
                       "released", "INVALID_GRADIENT")
            refuse(f"{name} received a gradient from records outside the batches of the private loader, which is not clipped; "
                   "iterate over the loader that make_private returned, and call the module on its batches, one at a time. "
                   "Evaluate under torch.no_grad(). Nothing was released", "INVALID_GRADIENT")
        return hook

    def _totals(self) -> torch.Tensor:
        if self._norm2 is None:
            self._norm2 = torch.zeros(self.part_count, self.records, dtype=torch.float64)
            self._rows = self._norm2.unbind()
        return self._norm2

    def _row(self, part: int) -> torch.Tensor:
        self._totals()
        return self._rows[part]

    def _add_norms(self, pieces: Mapping[str, Piece]) -> None:
        if len(pieces) == 2:  # a weight and its bias
            (weight, outer), (bias, column) = pieces.items()
            if isinstance(outer, Outer) and isinstance(column, Column) and column.g is outer.g \
                    and self.parts[weight] == self.parts[bias]:
                outer.add_norm2(self._row(self.parts[weight]), bias=True)
                return
        for name, piece in pieces.items():
            piece.add_norm2(self._row(self.parts[name]))

    def _factor(self) -> float:
        # The mean loss has divided every record's gradient by the number of records.
        return float(self.records) if self.mean else 1.0

    def _norm_factor(self) -> float:
        return self._factor() * HALF_CHARGE if self.half else self._factor()

    def _norms(self, norm2: torch.Tensor) -> torch.Tensor:
        """Norms [records, parts] from squares [parts, records]."""
        parts, n = norm2.shape
        norms = torch.empty(n, parts, dtype=torch.float64)
        core.norms_of(norm2, norms, self._norm_factor())
        return norms

    def _sum_now(self, pieces: Mapping[str, Piece]) -> None:
        """Fused clipping: the part belongs to one layer, whose gradient is available."""
        part = self.parts[next(iter(pieces))]
        if {name for name in self.of_part[part] if self.parameters[name].requires_grad} != pieces.keys():
            return
        assert self.bounds is not None
        weights = torch.empty(self.records, dtype=torch.float64)
        core.clipped_weights(self._row(part), weights, self.bounds()[part], self._norm_factor(),
                              self._factor() / self.batch, self.dtype == torch.float64)
        for name, piece in pieces.items():
            self._add(name, piece, weights)
            del self._done[name]
            self._summed.add(name)

    def _weights(self, norms: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        """The factors [parts, records] for the unscaled gradients, rounded down; 0 for a record that is left out."""
        n, parts = norms.shape
        weights = torch.empty(parts, n, dtype=torch.float64)
        core.weights_of(norms, scales, weights, self._factor() / self.batch, self.dtype == torch.float64)
        return weights

    def _add(self, name: str, piece: Piece, weights: torch.Tensor) -> None:
        if not self.absent:
            self.buffers[name] = piece.weighted(weights, self.buffers.get(name))

    def _finish(self) -> None:
        assert self.sink is not None
        try:
            with torch.no_grad():
                for name, pieces in self._waiting.items():
                    piece = pieces[0] if len(pieces) == 1 else Sum(pieces, self.parameters[name].shape)
                    self._add_norms({name: piece})
                    self._done[name] = piece
                norms = self._norms(self._totals())
                scales = self.sink.take_norms(norms).contiguous()
                if self._done:
                    by_part = self._weights(norms, scales).unbind()
                for name in list(self._done):
                    self._add(name, self._done.pop(name), by_part[self.parts[name]])
        except BaseException:
            self.failed()
            raise
        finally:
            self.uses.clear()
            self._clear()


def _require_exact_products() -> None:
    backend: Any = torch.backends.mkldnn
    if backend.matmul.fp32_precision not in ("none", "ieee"):
        refuse("float32 products have reduced precision, so the norm of a clipped record may exceed its bound; undo "
               "torch.set_float32_matmul_precision. Nothing was released")


class Look:
    """Records the shapes of the module's inputs. In a copy of the module, the hook does nothing."""

    def __init__(self, clipper: Clipper | None = None) -> None:
        self.clipper = clipper

    @torch.compiler.disable
    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        clipper = self.clipper
        if clipper is not None and clipper.active and module is clipper.module and torch.is_grad_enabled():
            clipper.shapes = shapes_of((args, kwargs))

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Look, ()


def shapes_of(tree: Any) -> list[torch.Size]:
    return [x.shape for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


HALF = (torch.bfloat16, torch.float16)
# Half-precision kernels round the last elements of a tensor differently from the others, so a few records change by about
# 2⁻⁸ of themselves with the size of the batch (for instance rsqrt: 1.006). Norms are enlarged by this factor.
HALF_CHARGE = 1 + 2.0**-6


def refuse_half(found: str) -> NoReturn:
    refuse(f"{found}: with a mean loss the backward pass rounds each record's gradient after dividing it by the number of "
           "drawn records, so one record changes the rounding of all others. Sum the loss over the records (reduction='sum') "
           "and call make_private(loss_reduction='sum'), which divides by the public batch size after clipping; or train in "
           "float32")


def _half_below(node: Any) -> str:
    """Where the backward pass below the node uses half precision; empty if nowhere."""
    seen: set[Any] = set()
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for grad in node._input_metadata:
            if grad.dtype in HALF:
                return f"the backward pass has a gradient of {grad.dtype} ({node.name()})"
        waiting.extend(below for below, _ in node.next_functions)
    return ""
