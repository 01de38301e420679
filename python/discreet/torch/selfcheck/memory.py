"""The content of a module: a fingerprint of every tensor, number and text that can be reached from it.

Covered are parameters, buffers, attributes, containers, objects, hooks, closures and defaults of functions, class attributes
of modules outside PyTorch, and the state of the random generators. Not covered are global variables, files, and the state of
other libraries.
"""

from __future__ import annotations

import functools
import sys
import types
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from discreet.torch.errors import refuse
from discreet.torch.selfcheck import draws

GENERATORS = "random generators"
LIMIT = 200_000  # maximum number of objects
_BY_HOOK = ("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called")  # ids count upwards
_PLAIN = (int, float, complex, bool, str, bytes, type(None))
_SKIPPED = (type, types.ModuleType, torch.dtype, torch.device, torch.Size, types.BuiltinFunctionType, torch.Generator)


def fingerprint(module: nn.Module) -> dict[str, object]:
    """Path → content. Two fingerprints are equal if and only if the contents are (up to collisions of a checksum)."""
    found: dict[str, object] = {}
    seen: dict[int, object] = {}
    waiting: list[tuple[str, object]] = [("", module), *reversed([*module.named_parameters(), *module.named_buffers()])]
    while waiting:
        if len(seen) >= LIMIT:
            refuse(f"self-check: the module contains more than {LIMIT:,} objects, so it cannot be checked whether it stores "
                   "records. Keep large tables in tensors, or outside the module")
        path, one = waiting.pop()
        if isinstance(one, _PLAIN):
            found[path] = one if one == one else "nan"
            continue
        # The bookkeeping of torch.compile does not belong to the module; the compiled module is reached like any other.
        if id(one) in seen or isinstance(one, _SKIPPED) or type(one).__module__.startswith("discreet.") or \
                type(one).__module__.startswith("torch._dynamo.") and not isinstance(one, nn.Module):
            continue
        seen[id(one)] = one
        if isinstance(one, torch.Tensor):
            found[path] = of_tensor(one)
            if one.grad_fn is None and one._backward_hooks:
                waiting += _below(path + "~", one._backward_hooks)
        elif type(one).__module__ == "numpy":
            array: Any = one
            found[path] = (str(getattr(array, "dtype", "")), getattr(array, "shape", ()), zlib.crc32(array.tobytes()))
        else:
            waiting += _below(path, one)
    found[GENERATORS] = tuple(map(_of_generator, draws.state()))
    return found


def fingerprint_of_tensors(tensors: Mapping[str, object]) -> dict[str, object]:
    return {path: of_tensor(x) for path, x in tensors.items() if isinstance(x, torch.Tensor)}


def _below(path: str, one: Any) -> list[tuple[str, object]]:
    def join(key: object) -> str:
        return f"{path}.{key}" if path else str(key)

    if isinstance(one, Mapping):
        # Keys are compared by their text; ids of hooks increase in every copy.
        hooks = bool(one) and all(isinstance(key, int) for key in one) and all(map(callable, one.values()))
        return [(f"{path}[{i if hooks else key}]", value) for i, (key, value) in enumerate(list(one.items()))]
    if isinstance(one, (set, frozenset)):
        return [(f"{path}{{{i}}}", value) for i, value in enumerate(sorted(one, key=repr))]
    if isinstance(one, functools.partial):
        return [(join("func"), one.func), (join("args"), one.args), (join("keywords"), one.keywords)]
    if isinstance(one, types.MethodType):
        return [(join("self"), one.__self__), (join("function"), one.__func__)]
    if isinstance(one, types.FunctionType):
        cells = [(join(name), cell) for name, cell in zip(one.__code__.co_freevars, one.__closure__ or ())]
        out = [(name, cell.cell_contents) for name, cell in cells if _is_filled(cell)]
        return out + [(join("defaults"), one.__defaults__), (join("kwdefaults"), one.__kwdefaults__),
                      (join("attributes"), vars(one))]
    if isinstance(one, types.GeneratorType):
        return [(join(key), value) for key, value in (one.gi_frame.f_locals if one.gi_frame else {}).items()]
    if isinstance(one, nn.Module):
        own: dict[str, Any] = {key: list(value.values()) if key in _BY_HOOK else value for key, value in vars(one).items()
               if key not in ("forward", "_compiled_call_impl")}
        below = [(join(key), value) for kind in ("_parameters", "_buffers", "_modules")
                 for key, value in own.pop(kind).items()]
        below += [(join(key), value) for key, value in own.items() if not _of_discreet(value)]
        for kind in type(one).__mro__:
            if not kind.__module__.startswith(("torch.", "builtins")):
                below += [(f"{kind.__name__}.{key}", value) for key, value in vars(kind).items()
                          if not key.startswith("__") and not callable(value)]
        return below
    if isinstance(one, (list, tuple)) or type(one).__name__ == "deque":
        return [(f"{path}[{i}]", value) for i, value in enumerate(one)]
    below = [(join(key), value) for key, value in getattr(one, "__dict__", {}).items()] if not callable(one) or \
        hasattr(one, "__dict__") and not isinstance(one, type) else []
    for kind in type(one).__mro__:
        below += [(join(key), getattr(one, key)) for key in _slots(kind) if hasattr(one, key)]
    if type(one).__module__.startswith(("torch._C", "torch.utils.hooks", "weakref")):
        return []
    return below


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _of_discreet(value: object) -> bool:
    return type(value).__module__.startswith("discreet.")


def of_tensor(x: torch.Tensor) -> object:
    try:
        if torch._C._functorch.is_functorch_wrapped_tensor(x):
            return object()  # of a record, from an earlier pass: equal to nothing
        kind = (str(x.dtype), tuple(x.shape))
        x = x.detach()
        if x.layout is not torch.strided or x.device.type != "cpu":
            x = x.to_dense().cpu()
        # Zeros of both signs are equal.
        data = (x + 0.0 if x.numel() < 1 << 16 and x.is_floating_point() else x).contiguous()
        return kind, zlib.crc32(data.view(-1).view(torch.uint8).numpy().data) if x.numel() else 0
    except (RuntimeError, NotImplementedError, TypeError):
        return object()


def _of_generator(state: Any) -> int:
    if isinstance(state, torch.Tensor):
        return zlib.crc32(state.numpy().data)
    if state is None:
        return 0
    return zlib.crc32(repr(state if sys.modules.get("numpy") is None else
                           [getattr(part, "tolist", lambda part=part: part)() for part in state]).encode())


def differences(a: dict[str, object], b: dict[str, object]) -> list[str]:
    """The paths at which two fingerprints differ."""
    return sorted(path for path in a.keys() | b.keys() if path not in a or path not in b or a[path] != b[path])
