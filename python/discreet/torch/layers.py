"""Rejects settings of layers that violate the bound, in every module that can be reached from the trained one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from discreet.errors import Error
from discreet.torch.errors import refuse

_BATCH_NORM = nn.modules.batchnorm._BatchNorm


def modules_of(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module, including those in attributes, lists and dictionaries outside the module tree."""
    seen: set[int] = set()
    waiting: deque[tuple[str, object]] = deque([("", module)])
    while waiting:
        name, one = waiting.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, nn.Module):
            yield name, one
            prefix = name + "." if name else ""
            waiting += [(prefix + key, below) for key, below in one._modules.items() if below is not None]
            waiting += [(prefix + key, held) for key, held in vars(one).items()
                        if not key.startswith("_") and isinstance(held, (nn.Module, list, tuple, dict, set))]
        elif isinstance(one, dict):
            waiting += [(f"{name}[{key!r}]", held) for key, held in one.items() if _may_hold(held)]
        elif isinstance(one, Iterable):
            waiting += [(f"{name}[{i}]", held) for i, held in enumerate(one) if _may_hold(held)]


def _may_hold(held: object) -> bool:
    return isinstance(held, (nn.Module, list, tuple, dict, set))


def check_layer(name: str, module: nn.Module) -> None:
    """Rejects settings with which one record's gradient depends on others, or with which the layer stores records."""
    name = name or "the module"
    if any(is_lazy(p) for p in (*module._parameters.values(), *module._buffers.values()) if p is not None):
        refuse(f"{name} is a lazy {type(module).__name__} whose parameters have no shape yet. Call the module once with an "
               "input of the right shape, then create the optimizer and call make_private")
    if isinstance(module, _BATCH_NORM):
        if module.training or any(p.requires_grad for p in module.parameters()) or module.running_mean is None:
            refuse(batch_norm_refusal(name, module))
    if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
        refuse(f"{name} keeps running statistics of private records; create it with track_running_stats=False")
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        # max_norm changes rows when they are looked up, even frozen ones.
        for key in ("max_norm", "scale_grad_by_freq", "sparse") if module.weight.requires_grad else ("max_norm",):
            if getattr(module, key):
                refuse(f"{name} has {key}={getattr(module, key)}, which depends on the records of the batch; remove it")


def batch_norm_refusal(name: str, module: nn.Module) -> str:
    return (f"{name} is a {type(module).__name__}: its statistics mix the records of a batch, so the gradient of a record "
            "cannot be bounded; use GroupNorm, as discreet.torch.fix(module) does, or freeze it in eval mode with its running "
            "statistics")


def faults(module: nn.Module) -> list[Error]:
    """Everything that check_layer rejects."""
    found = []
    for name, one in modules_of(module):
        try:
            check_layer(name, one)
        except Error as error:
            found.append(error)
    return found


class TrainingStatistics:
    """A hook before a BatchNorm, which in training mode would mix and store the records of a batch."""

    def __init__(self, name: str, module: nn.Module) -> None:
        self.refusal = batch_norm_refusal(name, module)

    def __call__(self, module: nn.Module, _: object) -> None:
        if module.training:
            refuse(self.refusal)


def steady_gradients(module: nn.Module) -> list[Any]:
    """Hooks that pass contiguous gradients to normalisations. With channels-last strides, PyTorch 2.13 on the CPU returns wrong
    gradients for one record and correct ones for several, so a record's gradient would depend on whether it is alone."""
    return [one.register_forward_hook(_contiguous_gradient) for _, one in modules_of(module)
            if isinstance(one, nn.modules.batchnorm._NormBase)]


def _contiguous_gradient(module: nn.Module, inputs: object, y: object) -> None:
    if isinstance(y, torch.Tensor) and y.requires_grad and not torch._C._functorch.is_functorch_wrapped_tensor(y):
        y.register_hook(torch.Tensor.contiguous)


def watch_batch_norms(module: nn.Module) -> list[Any]:
    """Hooks that reject a BatchNorm that is set to training mode later."""
    return [one.register_forward_pre_hook(TrainingStatistics(name, one))
            for name, one in modules_of(module) if isinstance(one, _BATCH_NORM)]
