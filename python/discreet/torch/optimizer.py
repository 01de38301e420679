"""optimizer.step() and zero_grad() of private training: the optimizers stay what they are."""

from __future__ import annotations

import functools
import types

from discreet.torch import state
from discreet.torch.errors import refuse


class Optimizers:
    """Those that share a module. The first step() after a batch releases the gradients of all of them."""

    def __init__(self, engine, optimizers: list) -> None:
        self.engine, self.optimizers = engine, optimizers
        self.due: set[int] = set()  # those that have not used the release
        for optimizer in optimizers:
            # A method, as the schedulers expect.
            optimizer.step = types.MethodType(self._step(optimizer, optimizer.step), optimizer)
            optimizer.zero_grad = self._zero_grad(optimizer.zero_grad)
        module = engine.module
        module.zero_grad = self._zero_grad(module.zero_grad)

    @staticmethod
    def check(optimizers: list, names: dict[int, str]) -> None:
        seen: set[int] = set()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if id(p) not in names:
                        refuse("an optimizer holds a parameter that is none of the module's: nothing would clip it; "
                               "give it an optimizer of its own")
                    if id(p) in seen:
                        refuse(f"{names[id(p)]} is in two optimizers")
                    seen.add(id(p))

    def _step(self, optimizer, own):
        @functools.wraps(own)
        def step(self_, closure=None):
            engine = self.engine
            if closure is not None:
                refuse("optimizer.step(closure) may look at the records several times; call it without")
            if engine._open and not engine._final:
                return None  # more pieces of the batch are to come
            if engine._open:
                engine.release()
                self.due = {id(o) for o in self.optimizers}
            elif id(optimizer) not in self.due:
                engine.release()  # says what is missing
            self.due.discard(id(optimizer))
            out = own()
            if not self.due:
                state.checkpoint_if_due(engine)
            return out
        return step

    def _zero_grad(self, own):
        @functools.wraps(own)
        def zero_grad(set_to_none: bool = True):
            engine = self.engine
            # Between the pieces of a batch what was summed stays.
            if engine._open and engine._final and engine._seen == engine._handed and engine._seen > 0:
                engine.drop()
            own(set_to_none=set_to_none)
        return zero_grad
