"""step() and zero_grad() of the optimizers of private training; everything else of the optimizers is unchanged."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from discreet.torch import state
from discreet.torch.errors import refuse

if TYPE_CHECKING:
    from discreet.torch.engine import PrivacyEngine

_OPTIONAL = inspect.Parameter("closure", inspect.Parameter.KEYWORD_ONLY, default=None)


class Optimizers:
    """The optimizers of a module. The first step() after a batch releases the gradients of all of them."""

    def __init__(self, engine: PrivacyEngine, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self.engine, self.optimizers = engine, optimizers
        self.names = {id(p): name for name, p in engine.module.named_parameters()}
        self.due: set[int] = set()  # the optimizers that have not used the release yet
        own: Any
        for own in optimizers:
            own.step = types.MethodType(self._step(own, own.step), own)  # a method, as the schedulers expect
            own.zero_grad = ZeroGrad(engine, own)
        own = engine.module
        own.zero_grad = ZeroGrad(engine, engine.module)
        self.show()

    @staticmethod
    def check(optimizers: Sequence[torch.optim.Optimizer], names: dict[int, str]) -> None:
        """Rejects optimizers that use unreleased values, or cannot use released ones."""
        seen: set[int] = set()
        for optimizer in optimizers:
            if isinstance(getattr(optimizer, "zero_grad", None), ZeroGrad):
                refuse("the optimizer belongs to another private run; create a new one")
            if inspect.signature(optimizer.step).parameters.get("closure", _OPTIONAL).default is inspect.Parameter.empty:
                refuse(f"{type(optimizer).__name__} needs a closure and may evaluate the records several times per step; use "
                       "another optimizer")
            if isinstance(optimizer, torch.optim.SparseAdam):
                refuse("SparseAdam needs sparse gradients, but every coordinate has noise; use Adam")
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if id(p) not in names:
                        refuse("an optimizer has a parameter outside the module, which would not be clipped; use a separate "
                               "optimizer for it, and do not train it on private records")
                    if id(p) in seen:
                        refuse(f"{names[id(p)]} is in two optimizers; keep it in one")
                    seen.add(id(p))

    def show(self) -> None:
        """Sets the attributes that Opacus's optimizers have."""
        session = self.engine._started()
        bound, *more = session.clip_bounds()
        self.shown: dict[str, Any] = {
            "noise_multiplier": session.noise_multiplier(), "max_grad_norm": [bound, *more] if more else bound,
            "expected_batch_size": self.engine.batch_size}
        for optimizer in self.optimizers:
            vars(optimizer).update(self.shown)

    def _check_unchanged(self) -> None:
        for optimizer in self.optimizers:
            for key, value in self.shown.items():
                if getattr(optimizer, key, value) != value:
                    now = getattr(optimizer, key)
                    setattr(optimizer, key, value)
                    refuse(f"{key} was set to {now}, but the run is accounted with {value}, which was restored. Start another "
                           "run to change it; with clipping='adaptive' the bound follows the norms")
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if id(p) not in self.names:
                        refuse("an optimizer got a parameter outside the module after make_private was called, which would not "
                               "be clipped; use a separate optimizer for it, and do not train it on private records")

    def _step(self, optimizer: torch.optim.Optimizer, own: Callable[[], Any]) -> Callable[..., Any]:
        @functools.wraps(own)
        def step(self_: object, closure: object = None) -> Any:
            engine = self.engine
            if closure is not None:
                refuse("optimizer.step(closure) may evaluate the records several times; call it without a closure")
            if engine._batch.awaits_pieces:
                return None  # more pieces of the batch follow
            self._check_unchanged()
            if engine._batch.open:
                engine.release()
                self.due = {id(o) for o in self.optimizers}
                self.show()
            elif id(optimizer) not in self.due:
                engine.release()  # raises an error that says what is missing
            self.due.discard(id(optimizer))
            out = own()
            if not self.due:
                state.checkpoint_if_due(engine)
            return out
        return step


class ZeroGrad:
    """Replaces zero_grad. A copy of the module has the zero_grad of its class again."""

    def __init__(self, engine: PrivacyEngine, owner: Any) -> None:
        self.engine, self.owner = engine, owner

    def __call__(self, set_to_none: bool = True) -> None:
        engine = self.engine
        # Between the pieces of a batch, the sums are kept.
        if engine._batch.is_whole or engine._clipper.unfinished:
            engine.drop()
        type(self.owner).zero_grad(self.owner, set_to_none=set_to_none)

    def __reduce__(self) -> tuple[object, tuple[Any]]:
        return _own_zero_grad, (self.owner,)


def _own_zero_grad(owner: Any) -> types.MethodType:
    return types.MethodType(type(owner).zero_grad, owner)
