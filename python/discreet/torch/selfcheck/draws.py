"""Random numbers of the self-check: drawn again from a seed, or one fixed number for every draw."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from discreet.torch.errors import refuse

# Random operators without PyTorch's tag for them.
UNTAGGED = {"random_", "random", "binomial", "_sample_dirichlet"}
UNIFORM, NORMAL = 0.6180339887498949, 0.7071067811865476
State = tuple[torch.Tensor, tuple[Any, ...], Any]


def state() -> State:
    """The state of all generators that a module may draw from."""
    numpy = sys.modules.get("numpy")
    return (torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None)


def restore(saved: State) -> None:
    torch.set_rng_state(saved[0])
    random.setstate(saved[1])
    if saved[2] is not None:
        sys.modules["numpy"].random.set_state(saved[2])


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Restores the generators at the end."""
    saved = state()
    try:
        yield
    finally:
        restore(saved)


def seed(value: int) -> None:
    torch.default_generator.manual_seed(value)  # torch.manual_seed is slower: it seeds all devices
    random.seed(value)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(value)


def _probability(x: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
    return (torch.as_tensor(p, dtype=torch.float64) > 1 - UNIFORM).to(x.dtype).expand_as(x)


def _low_high(args: Sequence[int]) -> tuple[int, int]:
    return (0, args[0]) if len(args) == 1 else (args[0], args[1])


class Drew(Exception):
    """Random numbers were drawn where none were expected."""


class AsDrawn:
    """Draws random numbers as usual, from a seed."""

    drawn = chosen = False

    def __enter__(self) -> AsDrawn:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, value: int) -> None:
        """Call it before the collate function or the module."""
        seed(value)

    def end(self) -> None:
        """Call it afterwards."""


class NoneDrawn(AsDrawn):
    """Like OneNumber but faster, for a module that draws no random numbers: raises Drew if one was drawn."""

    def begin(self, value: int) -> None:
        seed(value)
        self.before = state()

    def end(self) -> None:
        (own, python, numpy), (own_after, python_after, numpy_after) = self.before, state()
        if not torch.equal(own, own_after) or python != python_after or numpy is not None and (
                numpy[2:] != numpy_after[2:] or (numpy[1] != numpy_after[1]).any()):
            raise Drew


class OneNumber(TorchDispatchMode):
    """Within this context every random operator draws the same number, for any shape: the draws of a record do not depend on
    the number of records or positions. Unknown random operators are rejected. `drawn`: random numbers were drawn; `chosen`:
    values determined a shape or a branch of the code."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = self.chosen = False

    def begin(self, value: int) -> None:
        seed(value)

    def end(self) -> None:
        pass

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if torch.Tag.nondeterministic_seeded not in func.tags and name not in UNTAGGED:
            self.chosen |= torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags
            return func(*args, **kwargs)
        if name in ("native_dropout",) and args[2] is False or name.startswith(("_scaled_dot_product", "_dropout")):
            return func(*args, **kwargs)
        self.drawn = True
        new = getattr(self, "of_" + name.removesuffix("_"), None)
        if new is None:
            refuse(f"self-check: the module draws random numbers with {func}, whose draws cannot be repeated for one record "
                   "alone; use torch.rand, torch.randn, torch.bernoulli or dropout instead")
        return new(func, args, kwargs)

    @staticmethod
    def _fill(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
              value: float | Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """The result of the operator filled with `value`: in place, or a new tensor of its shape and type."""
        if func.overloadpacket.__name__.endswith("_"):
            given: torch.Tensor = args[0]
            return given.copy_(value(given)) if callable(value) else given.fill_(value)
        out: torch.Tensor = func(*args, **kwargs)
        return out.copy_(value(out)) if callable(value) else out.fill_(value)

    def of_native_dropout(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, p = args[0], args[1]
        return x / (1 - p) if p < 1 else x * 0, torch.ones_like(x, dtype=torch.bool)

    def of_bernoulli(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        p = args[1] if len(args) > 1 and args[1] is not None else kwargs.get("p")
        if func.overloadpacket.__name__ == "bernoulli_" or p is not None:
            return self._fill(func, args, kwargs, lambda x: _probability(x, 0.5 if p is None else p))
        return _probability(args[0], args[0]).clone()

    def of_rand(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._fill(func, args, kwargs, UNIFORM)

    of_rand_like = of_rand

    def of_randn(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._fill(func, args, kwargs, NORMAL)

    of_randn_like = of_randn

    def of_randint(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        low, high = _low_high([x for x in args if isinstance(x, int)])
        return self._fill(func, args, kwargs, low + int(UNIFORM * (high - low)))

    of_randint_like = of_randint

    def of_random(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        ends = [x for x in args[1:] if isinstance(x, int)] or [2]
        low, high = _low_high(ends)
        return self._fill(func, args, kwargs, low + int(UNIFORM * (high - low)))

    def of_randperm(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Not the identity, which would hide an exchange of records.
        return self._fill(func, args, kwargs, lambda x: torch.arange(x.numel(), dtype=x.dtype).roll(1))

    def of_uniform(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        ends: list[Any] = [*args[1:], *[0.0, 1.0][len(args) - 1:]]
        low, high = ends
        return self._fill(func, args, kwargs, kwargs.get("from", low) + UNIFORM * (kwargs.get("to", high) - low))

    def of_normal(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func.overloadpacket.__name__ == "normal_":
            given: list[Any] = [*args[1:3], *[0.0, 1.0][len(args) - 1:]]
            mean, std = given
            return self._fill(func, args, kwargs, kwargs.get("mean", mean) + NORMAL * kwargs.get("std", std))
        mean, std = (*args[:2], *(0.0, 1.0)[len(args):])[:2]
        return self._fill(func, args, kwargs, lambda x: torch.as_tensor(mean + NORMAL * torch.as_tensor(std)).expand_as(x))

    def of_normal_functional(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return torch.full_like(args[0], NORMAL)

    def of_exponential(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._fill(func, args, kwargs, 0.5)

    of_log_normal = of_cauchy = of_geometric = of_exponential

    def of_poisson(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0].round()

    def of_binomial(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (args[0] * args[1]).round()

    def of_multinomial(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0].topk(args[1], -1).indices if args[1] <= args[0].shape[-1] else \
            args[0].argmax(-1, keepdim=True).expand(*args[0].shape[:-1], args[1]).clone()

    def of_rrelu_with_noise(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, noise, low, high = (*args, *(1 / 8, 1 / 3)[len(args) - 2:])[:4]
        training = args[4] if len(args) > 4 else kwargs.get("training", False)
        slope = low + UNIFORM * (high - low) if training else (low + high) / 2
        noise.copy_(torch.where(x <= 0, slope, 1.0).to(noise.dtype))
        out = x * noise
        return x.copy_(out) if func.overloadpacket.__name__.endswith("_") else out

    of_rrelu_with_noise_functional = of_rrelu_with_noise
