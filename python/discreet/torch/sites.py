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
from discreet.torch.pieces import Column, Explicit, Outer


def as_type(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x if x.dtype is dtype else x.to(dtype)  # to() takes microseconds to find that out


class Tap(torch.autograd.Function):
    """The identity; its backward pass shows the gradient to a site."""

    @staticmethod
    def forward(ctx, y, anchor, site, *inputs):
        ctx.site, ctx.count = site, len(inputs)
        ctx.save_for_backward(*inputs)
        ctx.mark_dirty(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        ctx.site.arrived(ctx.saved_tensors, g)
        return g, None, None, *[None] * ctx.count


class LinearTap(torch.autograd.Function):
    """x wᵀ + b with constant w and b, tapped. By itself, because F.linear may return a view, which would be copied."""

    @staticmethod
    def forward(ctx, x, anchor, site, w, b):
        ctx.site = site
        ctx.save_for_backward(x, w)
        return F.linear(x, w, b)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        ctx.site.arrived((x.detach(),), g)
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

    leading = "records"  # "multiple": several rows a record; "broadcast": the same input for all of them

    def __init__(self, clipper, name: str, module: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
        self.clipper, self.name, self.module, self.parameters = clipper, name, module, parameters

    def install(self) -> None:
        self.module.forward = Forward(self)

    def original(self, *args, **kwargs):
        return type(self.module).forward(self.module, *args, **kwargs)

    def __call__(self, *args, **kwargs):
        raise NotImplementedError

    def tap(self, y: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        self.clipper.used(self)
        if y._is_view() or not y.is_contiguous():
            y = y.clone()
        return Tap.apply(y, self.clipper.anchor, self, *(x.detach() for x in inputs))

    def arrived(self, inputs, g: torch.Tensor) -> None:
        self.clipper.arrived(self, *self.by_record(inputs, g))

    def by_record(self, inputs, g: torch.Tensor):
        """Inputs and gradient with the record first, in a precision that norms can be formed in."""
        n = self.clipper.records
        self.clipper.check_precision(self, g)
        if g.dtype not in (torch.float32, torch.float64):
            g = g.float()
        inputs = [as_type(x, g.dtype) if x.is_floating_point() else x for x in inputs]
        if self.leading == "multiple" and n > 0 and g.shape[0] % n == 0:
            g = g.reshape(n, g.shape[0] // n, *g.shape[1:])
            inputs = [x.reshape(n, x.shape[0] // n, *x.shape[1:]) for x in inputs]
        if g.shape[0] != n or any(x.shape[0] != n for x in inputs):
            refuse(f"layer {self.name} saw {g.shape[0]} rows where the batch has {n} records; the first dimension "
                   "of every layer must be the records. Give each record its own rows, or make_private with "
                   "self_check=True and example inputs, which learns how rows belong to records")
        return inputs, g

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
        if self.rule is rules.linear and self.leading != "broadcast" and len(args) == 1:
            self.clipper.saw(self, args)
            return LinearTap.at(self, args[0], self.module.weight, self.module.bias)
        with constant(self.module):
            y = self.original(*args, **kwargs)
        inputs = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        if self.leading == "broadcast":
            n = self.clipper.records
            if inputs[0].dim() == 1:
                y, inputs = y.unsqueeze(0), [inputs[0].unsqueeze(0)]
            y = y.expand(n, *y.shape[1:]).clone()
            inputs = [x.expand(n, *x.shape[1:]) for x in inputs]
        elif isinstance(self.module, nn.Embedding) and inputs[0].dim() == 1 and not self.clipper.probed:
            refuse(f"layer {self.name} is looked up with one index a row: whether rows are records or positions "
                   "cannot be told; make_private with self_check=True, or give indices [records, positions]")
        self.clipper.saw(self, inputs)
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
        self.rows = rows
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


class GenericSite(Site):
    """Any module, with all that is below it: its records are run again one by one, or by torch.func."""

    def __init__(self, clipper, name, module) -> None:
        own = {key: p for key, p in module.named_parameters() if p.requires_grad}
        super().__init__(clipper, name, module, own)
        self.recurrent = isinstance(module, nn.RNNBase)
        self.by_vmap = not self.recurrent
        for key, below in module.named_modules():
            chance = below.dropout if isinstance(below, nn.RNNBase) else getattr(below, "p", 0)
            if isinstance(below, (nn.RNNBase, nn.modules.dropout._DropoutNd)) and chance > 0:
                refuse(f"{name}.{key}".rstrip(".") + f" has dropout inside {name}, a {type(module).__name__} whose "
                       "records are run a second time; set it to 0, or put the dropout outside")

    def dims(self, count: int) -> list[int]:
        """Where the record is, in each of `count` inputs or outputs."""
        if not self.recurrent:
            return [0] * count
        return [0 if self.module.batch_first else 1] + [1] * (count - 1)

    def __call__(self, *args, **kwargs):
        tensors, spec = torch.utils._pytree.tree_flatten((args, kwargs))
        with contextlib.ExitStack() as stack:
            for below in self.module.modules():
                stack.enter_context(constant(below))
            y = self.original(*args, **kwargs)
        outputs, out_spec = torch.utils._pytree.tree_flatten(y)
        if not all(isinstance(x, torch.Tensor) for x in outputs):
            refuse(f"layer {self.name} ({type(self.module).__name__}) returns what is no tensor; register a rule for "
                   "it with register_grad_sampler")
        self.clipper.used(self)
        state = (tensors, spec)
        tapped = TapAll.apply(self, state, self.clipper.anchor, *outputs)
        return torch.utils._pytree.tree_unflatten(list(tapped), out_spec)

    def pieces(self, inputs, g):
        raise AssertionError("generic sites arrive by gradients")

    def arrived_all(self, state, gs) -> None:
        tensors, spec = state
        n = self.clipper.records
        for g in gs:
            self.clipper.check_precision(self, g)
        inputs = [x.detach() if isinstance(x, torch.Tensor) else x for x in tensors]
        held = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        in_dims = dict(zip(held, self.dims(len(held))))
        out_dims = self.dims(len(gs))
        for x, dim in [*((inputs[i], in_dims[i]) for i in held), *zip(gs, out_dims)]:
            if x.dim() <= dim or x.shape[dim] != n:
                refuse(f"layer {self.name} ({type(self.module).__name__}) has a tensor of shape {list(x.shape)} where "
                       f"the batch has {n} records; register a rule for it with register_grad_sampler")
        parameters = {key: p.detach() for key, p in self.parameters.items()}

        def loss(parameters, *one):
            record = list(inputs)
            for i, x in zip(held, one):
                record[i] = x.unsqueeze(in_dims[i])
            args, kwargs = torch.utils._pytree.tree_unflatten(record, spec)
            with self.clipper.inactive():
                y = torch.func.functional_call(self.module, parameters, args, kwargs)
            outputs = torch.utils._pytree.tree_leaves(y)
            return sum((y.squeeze(dim) * g).sum() for y, g, dim in zip(outputs, one[len(held):], out_dims))

        records = [inputs[i].movedim(in_dims[i], 0) for i in held]
        records += [g.movedim(dim, 0) for g, dim in zip(gs, out_dims)]
        gradients = None
        if self.by_vmap and n > 0:
            try:
                step = max(1, (1 << 24) // max(1, sum(p.numel() for p in parameters.values())))
                gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, *[0] * len(records)), chunk_size=step)(
                    parameters, *records)
            except (RuntimeError, ValueError):
                self.by_vmap = False  # an operation without a batching rule
        if gradients is None:
            gradients = {key: p.new_empty(n, *p.shape) for key, p in parameters.items()}
            for i in range(n):
                with torch.enable_grad():
                    leaves = {key: p.clone().requires_grad_() for key, p in parameters.items()}
                    one = torch.autograd.grad(loss(leaves, *(x[i] for x in records)), list(leaves.values()),
                                              allow_unused=True)
                for (key, p), gradient in zip(parameters.items(), one):
                    gradients[key][i] = 0 if gradient is None else gradient
        self.clipper.arrived_pieces(self, {key: Explicit(x) for key, x in gradients.items()} if n else {}, n)


class TapAll(torch.autograd.Function):
    """As Tap, for several outputs. Inputs are kept as they are: what a generic module reads must not change in place."""

    @staticmethod
    def forward(ctx, site, state, anchor, *outputs):
        ctx.site, ctx.state = site, state
        ctx.shapes = [(y.shape, y.dtype) for y in outputs]
        return tuple(y.clone() for y in outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gs):
        gs = [torch.zeros(shape, dtype=dtype) if g is None else g for g, (shape, dtype) in zip(gs, ctx.shapes)]
        ctx.site.arrived_all(ctx.state, gs)
        return None, None, None, *gs
