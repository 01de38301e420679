"""Copies of a module for the passes of the self-check, each of which begins with the state that the module had at first.

A copy that a pass left as it was is used again. That is seen where a module holds nothing but tensors, plain values, functions
and containers of them: the same objects are in the same places, and tensors that belong to the copy have the same values. A module
that holds other objects is copied for every pass.
"""

from __future__ import annotations

import copy
import types
from collections import deque

import torch
from torch import nn

from discreet.torch import memory
from discreet.torch.errors import refuse

SMALL = 1 << 16  # frozen parameters up to this many numbers are copied for every pass
_VALUES = (int, float, complex, bool, str, bytes, type(None))
_SHARED = (type, torch.dtype, torch.device, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)  # by all copies


class Opaque(Exception):
    """Something is held of which it cannot be seen whether it has changed."""


def copy_of(module: nn.Module, shared: dict | None = None) -> nn.Module:
    try:
        return copy.deepcopy(module, dict(shared or {}))
    except Exception as error:  # noqa: BLE001
        refuse(f"the self-check cannot copy the module ({type(error).__name__}: {error}); it must be an ordinary module that "
               "copy.deepcopy can copy, without tensors of a graph in its attributes, sharded parameters, locks or open files")


class Twins:
    """new() is the module as it was at first, with the same trained and large parameters; give_back() says that a pass is
    over."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.shared = {id(p): p for p in module.parameters() if p.requires_grad or p.numel() > SMALL}
        self._free: list[tuple[nn.Module, Held]] = []
        self._out: dict[int, Held] = {}

    def new(self) -> nn.Module:
        while self._free:
            twin, held = self._free.pop()
            if held.same_as(Held.of(twin, self.shared)):
                self._out[id(twin)] = held
                return twin
        twin = copy_of(self.module, self.shared)
        held = Held.of(twin, self.shared)
        if held is not None:
            self._out[id(twin)] = held
        return twin

    def give_back(self, twin: nn.Module) -> None:
        held = self._out.pop(id(twin), None)
        if held is not None:
            self._free.append((twin, held))

    def forget(self) -> None:
        """The module itself was changed."""
        self._free.clear()
        self._out.clear()


class Held:
    """What a copy holds: values, and objects, which stay alive so that no other can be taken for them."""

    def __init__(self) -> None:
        self.values: list = []
        self.objects: list = []

    @classmethod
    def of(cls, twin: nn.Module, shared: dict) -> Held | None:
        held = cls()
        try:
            for module in twin.modules():
                held.note(vars(module), shared)
        except (Opaque, RecursionError):
            return None
        return held

    def note(self, one, shared: dict) -> None:
        """In an order that two looks at the same copy have in common."""
        if isinstance(one, _VALUES):
            self.values += (type(one), one)
            return
        self.objects.append(one)
        if isinstance(one, torch.Tensor):
            if id(one) not in shared:
                self.values += (memory.of_tensor(one), one._version)
        elif isinstance(one, dict):
            for key, value in one.items():
                self.values.append(key)
                if isinstance(value, _VALUES):
                    self.values += (type(value), value)
                else:
                    self.note(value, shared)
        elif isinstance(one, (list, tuple, deque)):
            self.values.append(len(one))
            for value in one:
                self.note(value, shared)
        elif not isinstance(one, (nn.Module, *_SHARED)) and not (isinstance(one, (set, frozenset)) and not one):
            raise Opaque

    def same_as(self, other: Held | None) -> bool:
        return other is not None and self.values == other.values and len(self.objects) == len(other.objects) and all(
            a is b for a, b in zip(self.objects, other.objects))
