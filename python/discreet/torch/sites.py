"""Where parameters meet records: each layer's forward is run with constant weights, so that the backward pass computes
input gradients only, and hands its inputs and output gradients to the clipper."""

from __future__ import annotations

import contextlib
import types

import torch
from torch import nn
from torch.nn import functional as F

from discreet.torch import rules
from discreet.torch.errors import refuse
from discreet.torch.pieces import Column, Outer
from discreet.torch.rows import BROADCAST, ONE


def as_type(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x if x.dtype is dtype else x.to(dtype)  # to() takes microseconds to find that out


class Tap(torch.autograd.Function):
    """The identity; its backward pass shows the gradient to a site."""

    @staticmethod
    def forward(ctx, y, anchor, site, *inputs):
        ctx.site, ctx.count = site, len(inputs)
        ctx.of = site.clipper.piece, site.clipper.shapes
        ctx.save_for_backward(*inputs)
        ctx.mark_dirty(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        ctx.site.clipper.require_current(ctx.site, ctx.of[0])
        ctx.site.arrived(ctx.saved_tensors, g, ctx.of[1])
        return g, None, None, *[None] * ctx.count


class LinearTap(torch.autograd.Function):
    """x wᵀ + b with constant w and b, tapped. By itself, because F.linear may return a view, which would be copied."""

    @staticmethod
    def forward(ctx, x, anchor, site, w, b):
        ctx.site, ctx.of = site, (site.clipper.piece, site.clipper.shapes)
        ctx.save_for_backward(x, w)
        return F.linear(x, w, b)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        ctx.site.clipper.require_current(ctx.site, ctx.of[0])
        x, w = ctx.saved_tensors
        ctx.site.arrived((x.detach(),), g, ctx.of[1])
        return as_type(g @ as_type(w, g.dtype), x.dtype) if ctx.needs_input_grad[0] else None, None, None, None, None

    @staticmethod
    def at(site, x, w, b):
        site.clipper.used(site)
        return LinearTap.apply(x, site.clipper.anchor, site, w.detach(), b if b is None else b.detach())


@contextlib.contextmanager
def constant(module: nn.Module):
    """Within, the module's own parameters are constants."""
    own = module._parameters
    module._parameters = {name: p if p is None else p.detach() for name, p in own.items()}
    try:
        yield
    finally:
        module._parameters = own


class Site:
    """One layer. parameters: the names a rule gives to its pieces → the parameters."""

    leading = ONE  # how rows belong to records: RowsPerRecord, or BROADCAST where all records share them

    def __init__(self, clipper, name: str, module: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
        self.clipper, self.name, self.module, self.parameters = clipper, name, module, parameters

    def install(self) -> None:
        own = vars(self.module).get("forward")
        if own is not None and getattr(own, "__func__", None) is not type(self.module).forward:  # a copy has its class's
            refuse(f"{self.name or 'the module'} has a forward of its own, not its class's: what it computes cannot be known. "
                   "Give it a class with this forward")
        self.module.forward = Forward(self)

    def learn(self, leading) -> None:
        self.leading = leading

    def original(self, *args, **kwargs):
        return type(self.module).forward(self.module, *args, **kwargs)

    def __call__(self, *args, **kwargs):
        raise NotImplementedError

    def tap(self, y: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        self.clipper.used(self)
        if y._is_view() or not y.is_contiguous():
            y = y.clone()
        return Tap.apply(y, self.clipper.anchor, self, *(x.detach() for x in inputs))

    def arrived(self, inputs, g: torch.Tensor, shapes) -> None:
        """shapes: of the module's inputs in the forward pass."""
        self.clipper.arrived(self, *self.by_record(inputs, g, shapes))

    def by_record(self, inputs, g: torch.Tensor, shapes):
        """Inputs and gradient with the record first, in a precision that norms can be formed in."""
        n = self.clipper.records
        self.clipper.check_precision(self, g)
        if g.dtype not in (torch.float32, torch.float64):
            g = g.float()
        inputs = [as_type(x, g.dtype) if x.is_floating_point() else x for x in inputs]
        each = None if self.leading is BROADCAST else self.leading.of(g.shape[0], n, shapes)
        if self.leading is BROADCAST:
            each = 1 if g.shape[0] == n else None
        elif not self.clipper.probed:
            self.refuse_ambiguous(inputs, g)
        if each is not None and each > 1:
            g = g.reshape(n, each, *g.shape[1:])
            inputs = [x.reshape(n, each, *x.shape[1:]) if x.shape[0] == n * each else x for x in inputs]
        if each is None or g.shape[0] != n or any(x.shape[0] != n for x in inputs):
            refuse(f"layer {self.name} saw {g.shape[0]} rows where the batch has {n} records; the first dimension "
                   "of every layer must be the records. Give each record its own rows, the same number for all, or make_private "
                   "with self_check=True and example inputs, which learns how rows belong to records. Nothing was released")
        return inputs, g

    def refuse_ambiguous(self, inputs, g: torch.Tensor) -> None:
        """Without the self-check: positions that come before the records look the same where there are as many of them."""
        x, n = inputs[0] if inputs else g, self.clipper.records
        if isinstance(self.module, (nn.Embedding, nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.MultiheadAttention)):
            middle = x.shape[1:] if isinstance(self.module, nn.Embedding) else x.shape[1:-1]
            if n > 1 and n in middle:
                refuse(f"layer {self.name} saw {list(x.shape)} where the batch has {n} records: which dimension is the records "
                       "cannot be told. Call make_private with self_check=True. Nothing was released")

    def pieces(self, inputs, g: torch.Tensor) -> dict:
        raise NotImplementedError


class Forward:
    """Stands where the layer's forward was. A copy of the module has its own class's forward again."""

    def __init__(self, site: Site) -> None:
        self.site = site
        # What happens at a layer is not for torch.compile to record: it is different in every step.
        self.tapped = torch.compiler.disable(site.__call__)

    def __call__(self, *args, **kwargs):
        if not (self.site.clipper.active and torch.is_grad_enabled()):
            return self.site.original(*args, **kwargs)
        return (self.tapped if torch.compiler.is_compiling() else self.site)(*args, **kwargs)

    def __reduce__(self):
        return _own_forward, (self.site.module,)


def _own_forward(module: nn.Module):
    return types.MethodType(type(module).forward, module)


class LayerSite(Site):
    """A layer with a rule."""

    def __init__(self, clipper, name, module, rule) -> None:
        own = {key: p for key, p in module.named_parameters(recurse=False) if p.requires_grad}
        super().__init__(clipper, name, module, own)
        self.rule = rule

    def __call__(self, *args, **kwargs):
        if self.rule is rules.linear and self.leading is not BROADCAST and len(args) == 1:
            return LinearTap.at(self, args[0], self.module.weight, self.module.bias)
        with constant(self.module):
            y = self.original(*args, **kwargs)
        inputs = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        if self.leading is BROADCAST:
            n = self.clipper.records
            if inputs[0].dim() == 1:
                y, inputs = y.unsqueeze(0), [inputs[0].unsqueeze(0)]
            if any(len(x) != 1 for x in inputs):
                refuse(f"layer {self.name} saw {len(inputs[0])} rows; in the self-check it saw one that all records share")
            y = y.expand(n, *y.shape[1:]).clone()
            inputs = [x.expand(n, *x.shape[1:]) for x in inputs]
        elif isinstance(self.module, nn.Embedding) and inputs[0].dim() == 1 and not self.clipper.probed:
            refuse(f"layer {self.name} is looked up with one index a row: whether rows are records or positions "
                   "cannot be told; make_private with self_check=True, or give indices [records, positions]")
        return self.tap(y, *inputs)

    def pieces(self, inputs, g):
        return self.rule(self.module, inputs, g)


class ProjectionSite(Site):
    """A part of an attention layer that is a matrix product: weight [p, d] and bias of which rows [begin, end) are used."""

    def __init__(self, clipper, name, module, weight, bias) -> None:
        own = {"weight": weight, "bias": bias}
        super().__init__(clipper, name, module, {k: p for k, p in own.items() if p is not None and p.requires_grad})
        self.weight, self.bias = weight, bias

    def install(self) -> None:
        pass

    def project(self, x, begin=0, end=None):
        rows = slice(begin, self.weight.shape[0] if end is None else end)
        bias = None if self.bias is None else self.bias.detach()[rows]
        return LinearTap.at(Rest.of(self, rows), x, self.weight.detach()[rows], bias)

    def pieces(self, inputs, g):
        return rules.outer(inputs[0], g, "weight" in self.parameters, "bias" in self.parameters)


class Rest(ProjectionSite):
    """A projection by some of the rows: the others have gradient 0."""

    @classmethod
    def of(cls, site: ProjectionSite, rows: slice):
        if rows == slice(0, site.weight.shape[0]):
            return site
        self = cls(site.clipper, site.name, site.module, site.weight, site.bias)
        self.rows, self.leading = rows, site.leading
        return self

    def pieces(self, inputs, g):
        full = g.new_zeros(*g.shape[:-1], self.weight.shape[0])
        full[..., self.rows] = g
        n = g.shape[0]
        out = {}
        if "weight" in self.parameters:
            out["weight"] = Outer(inputs[0].reshape(n, -1, inputs[0].shape[-1]), full.reshape(n, -1, full.shape[-1]))
        if "bias" in self.parameters:
            out["bias"] = Column(full.reshape(n, -1, full.shape[-1]))
        return out


class AttentionSite(Site):
    """nn.MultiheadAttention as two projections around scaled_dot_product_attention."""

    def __init__(self, clipper, name, module) -> None:
        super().__init__(clipper, name, module, {})
        self.inward = ProjectionSite(clipper, name + ".in_proj", module, module.in_proj_weight, module.in_proj_bias)
        self.outward = ProjectionSite(clipper, name + ".out_proj", module, module.out_proj.weight, module.out_proj.bias)

    def learn(self, leading) -> None:
        self.leading = self.inward.leading = self.outward.leading = leading

    @staticmethod
    def serves(module: nn.MultiheadAttention) -> bool:
        return module._qkv_same_embed_dim and module.bias_k is None and not module.add_zero_attn

    def __call__(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                 average_attn_weights=True, is_causal=False):
        m, width = self.module, self.module.embed_dim
        if query.dim() != 3:
            refuse(f"layer {self.name} got a query without a dimension of records; give [records, positions, width]")
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

    def mask(self, attn_mask, padding, n, dtype):
        as_float = lambda x: (torch.zeros_like(x, dtype=dtype).masked_fill_(x, float("-inf"))  # noqa: E731
                              if x.dtype == torch.bool else x)
        out = None
        if attn_mask is not None:
            out = as_float(attn_mask)
            out = out.view(n, self.module.num_heads, *out.shape[1:]) if out.dim() == 3 else out
        if padding is not None:
            padding = as_float(padding).view(n, 1, 1, -1)
            out = padding if out is None else out + padding
        return out
