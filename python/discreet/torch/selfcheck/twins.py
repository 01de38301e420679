"""Copies of a module for the passes of the self-check, each of which starts with the module's initial state.

A copy that a pass did not change is used again. This can be detected if a module contains only tensors, plain values,
functions and containers of them: the same objects are in the same places, and the copy's own tensors have the same values. A
module that contains other objects is copied for every pass.
"""

from __future__ import annotations

import copy
import types
from collections import deque
from typing import Any

import torch
from torch import nn

from discreet.torch.errors import refuse
from discreet.torch.selfcheck import memory

SMALL = 1 << 16  # frozen parameters of up to this many elements are copied for every pass
_VALUES = (int, float, complex, bool, str, bytes, type(None))
_SHARED = (type, torch.dtype, torch.device, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)  # by all copies


class Opaque(Exception):
    """A module contains an object whose changes cannot be detected."""


Shared = dict[int, nn.Parameter]  # by id: the parameters that all copies share


def copy_of(module: nn.Module, shared: Shared | None = None) -> nn.Module:
    try:
        memo: dict[int, Any] = dict(shared or {})
        return copy.deepcopy(module, memo)
    except Exception as error:  # noqa: BLE001
        refuse(f"the self-check cannot copy the module ({type(error).__name__}: {error}); it must be a module that "
               "copy.deepcopy can copy, without graph tensors in its attributes, sharded parameters, locks or open files")


class Twins:
    """new() returns a copy in the module's initial state that shares its trained and large parameters; give_back() ends a
    pass."""

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
        content = Held.of(twin, self.shared)
        if content is not None:
            self._out[id(twin)] = content
        return twin

    def give_back(self, twin: nn.Module) -> None:
        held = self._out.pop(id(twin), None)
        if held is not None:
            self._free.append((twin, held))

    def forget(self) -> None:
        """Discards all copies, because the module itself changed."""
        self._free.clear()
        self._out.clear()


class Held:
    """The content of a copy: values, and objects, which are kept alive so that their ids stay unique."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.objects: list[object] = []

    @classmethod
    def of(cls, twin: nn.Module, shared: Shared) -> Held | None:
        held = cls()
        try:
            for module in twin.modules():
                held.note(vars(module), shared)
        except (Opaque, RecursionError):
            return None
        return held

    def note(self, one: Any, shared: Shared) -> None:
        """Records the content in a fixed order, so that two records of one copy are comparable."""
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
