"""optimizer.step() and zero_grad() of private training: the optimizers stay what they are."""

from __future__ import annotations

import functools
import inspect
import types

import torch

from discreet.torch import state
from discreet.torch.errors import refuse


_OPTIONAL = inspect.Parameter("closure", inspect.Parameter.KEYWORD_ONLY, default=None)


class Optimizers:
    """Those that share a module. The first step() after a batch releases the gradients of all of them."""

    def __init__(self, engine, optimizers: list) -> None:
        self.engine, self.optimizers = engine, optimizers
        self.names = {id(p): name for name, p in engine.module.named_parameters()}
        self.due: set[int] = set()  # those that have not used the release
        for optimizer in optimizers:
            # A method, as the schedulers expect.
            optimizer.step = types.MethodType(self._step(optimizer, optimizer.step), optimizer)
            optimizer.zero_grad = ZeroGrad(engine, optimizer)
        engine.module.zero_grad = ZeroGrad(engine, engine.module)
        self.show()

    @staticmethod
    def check(optimizers: list, names: dict[int, str]) -> None:
        """Refuses optimizers that use what was not released, or cannot use what is."""
        seen: set[int] = set()
        for optimizer in optimizers:
            if isinstance(getattr(optimizer, "zero_grad", None), ZeroGrad):
                refuse("the optimizer is that of another private run; make a new one")
            if inspect.signature(optimizer.step).parameters.get("closure", _OPTIONAL).default is inspect.Parameter.empty:
                refuse(f"{type(optimizer).__name__} needs a closure, and may look at the records several times a step; take "
                       "another optimizer")
            if isinstance(optimizer, torch.optim.SparseAdam):
                refuse("SparseAdam wants sparse gradients, and noise is in every coordinate; take Adam")
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if id(p) not in names:
                        refuse("an optimizer holds a parameter that is none of the module's: nothing would clip it; "
                               "give it an optimizer of its own, and train it on no private record")
                    if id(p) in seen:
                        refuse(f"{names[id(p)]} is in two optimizers; leave it in one")
                    seen.add(id(p))

    def show(self) -> None:
        """What Opacus' optimizers have, for who reads it."""
        session, (bound, *more) = self.engine._session, self.engine._session.clip_bounds()
        self.shown = {"noise_multiplier": session.noise_multiplier(), "max_grad_norm": [bound, *more] if more else bound,
                      "expected_batch_size": self.engine._batch}
        for optimizer in self.optimizers:
            vars(optimizer).update(self.shown)

    def _check_unchanged(self) -> None:
        for optimizer in self.optimizers:
            for key, value in self.shown.items():
                if getattr(optimizer, key, value) != value:
                    now = getattr(optimizer, key)
                    setattr(optimizer, key, value)
                    refuse(f"{key} was set to {now}, but the run is accounted with {value}; it is as it was again. Begin "
                           "another run to change it; clipping='adaptive' has a bound that follows the norms")
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if id(p) not in self.names:
                        refuse("an optimizer was given a parameter that is none of the module's since make_private was "
                               "called: nothing would clip it; give it an optimizer of its own, and train it on no private "
                               "record")

    def _step(self, optimizer, own):
        @functools.wraps(own)
        def step(self_, closure=None):
            engine = self.engine
            if closure is not None:
                refuse("optimizer.step(closure) may look at the records several times; call it without")
            if engine._open and not engine._final:
                return None  # more pieces of the batch are to come
            self._check_unchanged()
            if engine._open:
                engine.release()
                self.due = {id(o) for o in self.optimizers}
                self.show()
            elif id(optimizer) not in self.due:
                engine.release()  # says what is missing
            self.due.discard(id(optimizer))
            out = own()
            if not self.due:
                state.checkpoint_if_due(engine)
            return out
        return step


class ZeroGrad:
    """Stands where zero_grad was. A copy of the module has its own class's again."""

    def __init__(self, engine, owner) -> None:
        self.engine, self.owner = engine, owner

    def __call__(self, set_to_none: bool = True) -> None:
        engine = self.engine
        # Between the pieces of a batch what was summed stays.
        whole = engine._open and engine._final and engine._seen == engine._handed and engine._seen > 0
        if whole or engine._clipper.unfinished:
            engine.drop()
        type(self.owner).zero_grad(self.owner, set_to_none=set_to_none)

    def __reduce__(self):
        return _own_zero_grad, (self.owner,)


def _own_zero_grad(owner):
    return types.MethodType(type(owner).zero_grad, owner)
