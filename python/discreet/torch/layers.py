"""Settings of layers that break the bound, looked for in every module that can be reached from the one to be trained."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from discreet.errors import Error
from discreet.torch.errors import refuse

_BATCH_NORM = nn.modules.batchnorm._BatchNorm


def modules_of(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module, those also that are held in attributes, lists and dictionaries outside of the tree."""
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
        else:
            waiting += [(f"{name}[{i}]", held) for i, held in enumerate(one) if _may_hold(held)]


def _may_hold(held) -> bool:
    return isinstance(held, (nn.Module, list, tuple, dict, set))


def check_layer(name: str, module: nn.Module) -> None:
    """Rejects settings under which one record's gradient depends on others, or memory of them stays."""
    name = name or "the module"
    if any(is_lazy(p) for p in (*module._parameters.values(), *module._buffers.values()) if p is not None):
        refuse(f"{name} is a {type(module).__name__} that has not seen its input: its parameters have no shape yet. Call the "
               "module once with an input of the right shape, then create the optimizer and call make_private")
    if isinstance(module, _BATCH_NORM):
        if module.training or any(p.requires_grad for p in module.parameters()) or module.running_mean is None:
            refuse(batch_norm_refusal(name, module))
    if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
        refuse(f"{name} keeps running statistics of private records; create it with track_running_stats=False")
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        # A bound on rows is put on them where they are looked up, frozen ones too.
        for key in ("max_norm", "scale_grad_by_freq", "sparse") if module.weight.requires_grad else ("max_norm",):
            if getattr(module, key):
                refuse(f"{name} has {key}={getattr(module, key)}, which depends on who is in the batch; leave it out")


def batch_norm_refusal(name: str, module: nn.Module) -> str:
    return (f"{name} is a {type(module).__name__}: its statistics mix the records of a batch, so that no record's gradient can "
            "be bounded; use GroupNorm, as discreet.torch.fix(module) does, or freeze it in eval mode with its running "
            "statistics")


def faults(module: nn.Module) -> list[Error]:
    """All that check_layer rejects."""
    found = []
    for name, one in modules_of(module):
        try:
            check_layer(name, one)
        except Error as error:
            found.append(error)
    return found


class TrainingStatistics:
    """Stands before a BatchNorm: in training it would mix the records of a batch, and remember them."""

    def __init__(self, name: str, module: nn.Module) -> None:
        self.refusal = batch_norm_refusal(name, module)

    def __call__(self, module: nn.Module, _) -> None:
        if module.training:
            refuse(self.refusal)


def steady_gradients(module: nn.Module) -> list:
    """Hooks that hand normalisations contiguous gradients. Of strides with the channels last, PyTorch 2.13 on the CPU returns
    wrong gradients for one record and right ones for several, so that a record's would depend on whether it is alone."""
    return [one.register_forward_hook(_contiguous_gradient) for _, one in modules_of(module)
            if isinstance(one, nn.modules.batchnorm._NormBase)]


def _contiguous_gradient(module: nn.Module, inputs, y) -> None:
    if isinstance(y, torch.Tensor) and y.requires_grad and not torch._C._functorch.is_functorch_wrapped_tensor(y):
        y.register_hook(torch.Tensor.contiguous)


def watch_batch_norms(module: nn.Module) -> list:
    """Hooks that reject a BatchNorm put into training mode later."""
    return [one.register_forward_pre_hook(TrainingStatistics(name, one))
            for name, one in modules_of(module) if isinstance(one, _BATCH_NORM)]
