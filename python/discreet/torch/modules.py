"""Checks whether a module can be made private, and replaces layers that cannot."""

from __future__ import annotations

import copy
import math

from torch import nn

from discreet.errors import Error
from discreet.torch.clipper import Clipper
from discreet.torch.errors import refuse
from discreet.torch.layers import faults


def validate(module: nn.Module, *, strict: bool = False) -> list[Error]:
    """Every reason why the module cannot be made private; empty if it can. strict: raise the first one instead.

    This checks the settings of all layers. The self-check of make_private checks what a forward pass does."""
    found = faults(module)
    if not found:
        try:
            Clipper(module, {name: 0 for name, _ in module.named_parameters()}).remove()
        except Error as error:
            found = [error]
    if strict and found:
        raise found[0]
    return found


def fix(module: nn.Module) -> nn.Module:
    """A copy with GroupNorm instead of BatchNorm (with the same weights), and InstanceNorm without running statistics.

    If there are several channels, a group has at least two. A single channel with one value per record would always be
    normalised to zero, so such a BatchNorm1d becomes a LayerNorm.
    """
    module = copy.deepcopy(module)
    for name, child in list(module.named_modules()):
        new = _instead(name, child)
        if new is None:
            continue
        if name == "":
            return new
        parent, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(parent), leaf, new)
    return module


def _instead(name: str, module: nn.Module) -> nn.Module | None:
    if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
        new: nn.Module = type(module)(module.num_features, eps=module.eps, affine=module.affine)
    elif isinstance(module, nn.modules.batchnorm._BatchNorm):
        channels = module.num_features
        if channels == 0:
            refuse(f"{name} is lazy and has no size yet; run the module once, then call fix")
        if isinstance(module, nn.BatchNorm1d):
            new = nn.GroupNorm(1, channels, eps=module.eps, affine=module.affine)
        else:
            groups = max(g for g in range(1, min(32, channels) + 1)
                         if channels % g == 0 and (channels // g > 1 or channels == 1))
            new = nn.GroupNorm(groups, channels, eps=module.eps, affine=module.affine)
    else:
        return None
    if module.affine:
        new.load_state_dict({"weight": module.weight, "bias": module.bias})
        for key, p in new.named_parameters():
            p.requires_grad_(getattr(module, key).requires_grad)
    assert math.isfinite(module.eps)
    return new.to(next(module.parameters()).dtype) if module.affine else new
