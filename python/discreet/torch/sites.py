"""Sites: the layers in which parameters meet records. Each layer's forward runs with constant weights, so that the backward
pass computes only input gradients; the site hands its inputs and output gradients to the clipper."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Union, cast

import torch
from torch import nn
from torch.nn import functional as F

from discreet.torch import rules
from discreet.torch.errors import layer, refuse
from discreet.torch.pieces import Column, Outer, Piece
from discreet.torch.rows import BROADCAST, ONE, RowsPerRecord, Shapes

if TYPE_CHECKING:
    from discreet.torch.clipper import Clipper

Leading = Union[RowsPerRecord, str]  # how rows belong to records; BROADCAST: all records share them


def as_type(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x if x.dtype is dtype else x.to(dtype)  # calling to() would take microseconds


class Tap(torch.autograd.Function):
    """The identity; its backward pass hands the gradient to a site."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, anchor: torch.Tensor, site: Site, *inputs: torch.Tensor) -> torch.Tensor:
        ctx.site, ctx.count = site, len(inputs)
        ctx.of = site.clipper.piece, site.clipper.shapes
        ctx.save_for_backward(*inputs)
        ctx.mark_dirty(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        ctx.site.clipper.require_current(ctx.site, ctx.of[0])
        ctx.site.arrived(ctx.saved_tensors, g, ctx.of[1])
        return g, None, None, *[None] * ctx.count


class LinearTap(torch.autograd.Function):
    """x wᵀ + b with constant w and b, tapped. A separate function, because F.linear may return a view, which Tap would copy."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, anchor: torch.Tensor, site: Site, w: torch.Tensor,
                b: torch.Tensor | None) -> torch.Tensor:
        ctx.site, ctx.of = site, (site.clipper.piece, site.clipper.shapes)
        ctx.save_for_backward(x, w)
        return F.linear(x, w, b)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        ctx.site.clipper.require_current(ctx.site, ctx.of[0])
        x, w = ctx.saved_tensors
        ctx.site.arrived((x.detach(),), g, ctx.of[1])
        return as_type(g @ as_type(w, g.dtype), x.dtype) if ctx.needs_input_grad[0] else None, None, None, None, None

    @staticmethod
    def at(site: Site, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        site.clipper.used(site)
        out: torch.Tensor = LinearTap.apply(x, site.clipper.anchor, site, w.detach(), b if b is None else b.detach())
        return out


@contextlib.contextmanager
def constant(module: nn.Module) -> Iterator[None]:
    """Within this context, the module's own parameters are constants."""
    own = module._parameters
    detached: dict[str, Any] = {name: p if p is None else p.detach() for name, p in own.items()}
    module._parameters = detached
    try:
        yield
    finally:
        module._parameters = own


class Site:
    """One layer. parameters: the names that a rule gives to its pieces → the parameters."""

    leading: Leading = ONE

    def __init__(self, clipper: Clipper, name: str, module: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
        self.clipper, self.name, self.module, self.parameters = clipper, name, module, parameters

    def install(self) -> None:
        own = vars(self.module).get("forward")
        if own is not None and getattr(own, "__func__", None) is not type(self.module).forward:  # a copy has its class's
            refuse(f"{self.name or 'the module'} has a forward assigned to the instance, whose computation cannot be known. "
                   "Define a class with this forward")
        self.module.forward = Forward(self)

    def learn(self, leading: Leading) -> None:
        self.leading = leading

    def original(self, *args: Any, **kwargs: Any) -> Any:
        return type(self.module).forward(self.module, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def tap(self, y: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        self.clipper.used(self)
        if y._is_view() or not y.is_contiguous():
            y = y.clone()
        out: torch.Tensor = Tap.apply(y, self.clipper.anchor, self, *(x.detach() for x in inputs))
        return out

    def arrived(self, inputs: Sequence[torch.Tensor], g: torch.Tensor, shapes: Shapes) -> None:
        """shapes: of the module's inputs in the forward pass."""
        self.clipper.arrived(self, *self.by_record(inputs, g, shapes))

    def by_record(self, inputs: Sequence[torch.Tensor], g: torch.Tensor,
                  shapes: Shapes) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Inputs and gradient with the record dimension first, in a precision suitable for norms."""
        n = self.clipper.records
        self.clipper.check_precision(self, g)
        if g.dtype not in (torch.float32, torch.float64):
            g = g.float()
        inputs = [as_type(x, g.dtype) if x.is_floating_point() else x for x in inputs]
        if isinstance(self.leading, str):
            each = 1 if g.shape[0] == n else None
        else:
            each = self.leading.of(g.shape[0], n, shapes)
            if not self.clipper.probed:
                self.refuse_ambiguous(inputs, g)
        if each is not None and each > 1:
            g = g.reshape(n, each, *g.shape[1:])
            inputs = [x.reshape(n, each, *x.shape[1:]) if x.shape[0] == n * each else x for x in inputs]
        if each is None or g.shape[0] != n or any(x.shape[0] != n for x in inputs):
            refuse(f"{layer(self.name)} saw {g.shape[0]} rows, but the batch has {n} records; the first dimension "
                   "of every layer must be the records. Give each record the same number of rows, or call make_private "
                   "with self_check=True and example inputs, which learns how rows belong to records. "
                   "Nothing was released")
        return inputs, g

    def refuse_ambiguous(self, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> None:
        """Without the self-check, a leading dimension of positions is ambiguous if it is as long as the batch."""
        x, n = inputs[0] if inputs else g, self.clipper.records
        if isinstance(self.module, (nn.Embedding, nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.MultiheadAttention)):
            middle = x.shape[1:] if isinstance(self.module, nn.Embedding) else x.shape[1:-1]
            if n > 1 and n in middle:
                refuse(f"{layer(self.name)} saw an input of shape {list(x.shape)}, and the batch has {n} records: the record "
                       "dimension is ambiguous. Call make_private with self_check=True. Nothing was released")

    def pieces(self, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> dict[str, Piece]:
        raise NotImplementedError


class Forward:
    """Replaces the layer's forward. A copy of the module has the forward of its class again."""

    def __init__(self, site: Site) -> None:
        self.site = site
        # torch.compile must not record what happens at a layer: it differs in every step.
        self.tapped = torch.compiler.disable(site.__call__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self.site.clipper.active and torch.is_grad_enabled()):
            return self.site.original(*args, **kwargs)
        return (self.tapped if torch.compiler.is_compiling() else self.site)(*args, **kwargs)

    def __reduce__(self) -> tuple[object, tuple[nn.Module]]:
        return _own_forward, (self.site.module,)


def _own_forward(module: nn.Module) -> types.MethodType:
    return types.MethodType(type(module).forward, module)


class LayerSite(Site):
    """A layer with a rule."""

    def __init__(self, clipper: Clipper, name: str, module: nn.Module, rule: rules.Rule) -> None:
        own = {key: p for key, p in module.named_parameters(recurse=False) if p.requires_grad}
        super().__init__(clipper, name, module, own)
        self.rule = rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.rule is rules.linear and self.leading is not BROADCAST and len(args) == 1:
            linear: Any = self.module
            return LinearTap.at(self, args[0], linear.weight, linear.bias)
        with constant(self.module):
            y = self.original(*args, **kwargs)
        inputs = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        if self.leading is BROADCAST:
            n = self.clipper.records
            if inputs[0].dim() == 1:
                y, inputs = y.unsqueeze(0), [inputs[0].unsqueeze(0)]
            if any(len(x) != 1 for x in inputs):
                refuse(f"{layer(self.name)} saw {len(inputs[0])} rows; expected one row that all records share, as in the "
                       "self-check")
            y = y.expand(n, *y.shape[1:]).clone()
            inputs = [x.expand(n, *x.shape[1:]) for x in inputs]
        elif isinstance(self.module, nn.Embedding) and inputs[0].dim() == 1 and not self.clipper.probed:
            refuse(f"{layer(self.name)} gets one index per row, and rows may be records or positions; call make_private with "
                   "self_check=True, or use indices of shape [records, positions]")
        return self.tap(y, *inputs)

    def pieces(self, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> dict[str, Piece]:
        return self.rule(self.module, inputs, g)


class ProjectionSite(Site):
    """A matrix product inside an attention layer: rows [begin, end) of weight [p, d] and bias are used."""

    def __init__(self, clipper: Clipper, name: str, module: nn.Module, weight: nn.Parameter,
                 bias: nn.Parameter | None) -> None:
        own = {"weight": weight, "bias": bias}
        super().__init__(clipper, name, module, {k: p for k, p in own.items() if p is not None and p.requires_grad})
        self.weight, self.bias = weight, bias

    def install(self) -> None:
        pass

    def project(self, x: torch.Tensor, begin: int = 0, end: int | None = None) -> torch.Tensor:
        rows = slice(begin, self.weight.shape[0] if end is None else end)
        bias = None if self.bias is None else self.bias.detach()[rows]
        return LinearTap.at(Rest.of(self, rows), x, self.weight.detach()[rows], bias)

    def pieces(self, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> dict[str, Piece]:
        return rules.outer(inputs[0], g, "weight" in self.parameters, "bias" in self.parameters)


class Rest(ProjectionSite):
    """A projection by some of the rows: the others have gradient 0."""

    rows: slice

    @classmethod
    def of(cls, site: ProjectionSite, rows: slice) -> ProjectionSite:
        if rows == slice(0, site.weight.shape[0]):
            return site
        self = cls(site.clipper, site.name, site.module, site.weight, site.bias)
        self.rows, self.leading = rows, site.leading
        return self

    def pieces(self, inputs: Sequence[torch.Tensor], g: torch.Tensor) -> dict[str, Piece]:
        full = g.new_zeros(*g.shape[:-1], self.weight.shape[0])
        full[..., self.rows] = g
        n = g.shape[0]
        out: dict[str, Piece] = {}
        if "weight" in self.parameters:
            out["weight"] = Outer(inputs[0].reshape(n, -1, inputs[0].shape[-1]), full.reshape(n, -1, full.shape[-1]))
        if "bias" in self.parameters:
            out["bias"] = Column(full.reshape(n, -1, full.shape[-1]))
        return out


class AttentionSite(Site):
    """nn.MultiheadAttention as two projections around scaled_dot_product_attention."""

    module: nn.MultiheadAttention

    def __init__(self, clipper: Clipper, name: str, module: nn.MultiheadAttention) -> None:
        super().__init__(clipper, name, module, {})
        self.inward = ProjectionSite(clipper, name + ".in_proj", module, module.in_proj_weight, module.in_proj_bias)
        self.outward = ProjectionSite(clipper, name + ".out_proj", module, cast(nn.Parameter, module.out_proj.weight),
                                      module.out_proj.bias)

    def learn(self, leading: Leading) -> None:
        self.leading = self.inward.leading = self.outward.leading = leading

    @staticmethod
    def serves(module: nn.MultiheadAttention) -> bool:
        return module._qkv_same_embed_dim and module.bias_k is None and not module.add_zero_attn

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                 key_padding_mask: torch.Tensor | None = None, need_weights: bool = True,
                 attn_mask: torch.Tensor | None = None, average_attn_weights: bool = True,
                 is_causal: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
        m, width = self.module, self.module.embed_dim
        if query.dim() != 3:
            refuse(f"{layer(self.name)} got a query of shape {list(query.shape)}; expected [records, positions, width]")
        same, memory = key is query and value is query, value is key
        if not m.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        if same:
            q, k, v = self.inward.project(query).chunk(3, -1)
        else:
            q = self.inward.project(query, 0, width)
            if memory:
                k, v = self.inward.project(key, width).chunk(2, -1)
            else:
                k, v = self.inward.project(key, width, 2 * width), self.inward.project(value, 2 * width)
        n = q.shape[0]
        q, k, v = (x.reshape(n, -1, m.num_heads, m.head_dim).transpose(1, 2) for x in (q, k, v))
        mask = self.mask(attn_mask, key_padding_mask, n, q.dtype)
        if is_causal and mask is None and attn_mask is None:
            mask = nn.Transformer.generate_square_subsequent_mask(q.shape[2], dtype=q.dtype)
        dropout = m.dropout if m.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.transpose(-2, -1) * m.head_dim**-0.5
            weights = torch.softmax(scores if mask is None else scores + mask, -1)
            y = F.dropout(weights, dropout) @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        y = self.outward.project(y.transpose(1, 2).reshape(n, -1, width))
        return (y if m.batch_first else y.transpose(0, 1)), weights

    def mask(self, attn_mask: torch.Tensor | None, padding: torch.Tensor | None, n: int,
             dtype: torch.dtype) -> torch.Tensor | None:
        def as_float(x: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(x, dtype=dtype).masked_fill_(x, float("-inf")) if x.dtype == torch.bool else x

        out = None
        if attn_mask is not None:
            out = as_float(attn_mask)
            out = out.view(n, self.module.num_heads, *out.shape[1:]) if out.dim() == 3 else out
        if padding is not None:
            padding = as_float(padding).view(n, 1, 1, -1)
            out = padding if out is None else out + padding
        return out
