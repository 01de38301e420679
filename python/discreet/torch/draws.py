"""Random numbers of the self-check: drawn again from a seed, or one number for every draw."""

from __future__ import annotations

import contextlib
import random
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from discreet.torch.errors import refuse

# Random operators that PyTorch does not mark as such.
UNTAGGED = {"random_", "random", "binomial", "_sample_dirichlet"}
UNIFORM, NORMAL = 0.6180339887498949, 0.7071067811865476


def state() -> tuple:
    """Of the generators that a module may draw from."""
    numpy = sys.modules.get("numpy")
    return (torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None)


def restore(saved: tuple) -> None:
    torch.set_rng_state(saved[0])
    random.setstate(saved[1])
    if saved[2] is not None:
        sys.modules["numpy"].random.set_state(saved[2])


@contextlib.contextmanager
def kept():
    """Afterwards the generators are where they were."""
    saved = state()
    try:
        yield
    finally:
        restore(saved)


def seed(value: int) -> None:
    torch.default_generator.manual_seed(value)  # torch.manual_seed also notes it for every other device, with a trace
    random.seed(value)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(value)


def _probability(x: torch.Tensor, p) -> torch.Tensor:
    return (torch.as_tensor(p, dtype=torch.float64) > 1 - UNIFORM).to(x.dtype).expand_as(x)


def _low_high(args) -> tuple[int, int]:
    return (0, args[0]) if len(args) == 1 else (args[0], args[1])


class Drew(Exception):
    """Random numbers were drawn where none were expected."""


class AsDrawn:
    """Random numbers are what they are."""

    drawn = chosen = False

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        pass

    def begin(self, value: int) -> None:
        """Before the collate function, or the module, is called."""
        seed(value)

    def end(self) -> None:
        """After it."""


class NoneDrawn(AsDrawn):
    """As OneNumber, and faster, for a module that draws none: it throws Drew if one was drawn."""

    def begin(self, value: int) -> None:
        seed(value)
        self.before = state()

    def end(self) -> None:
        (own, python, numpy), (own_after, python_after, numpy_after) = self.before, state()
        if not torch.equal(own, own_after) or python != python_after or numpy is not None and (
                numpy[2:] != numpy_after[2:] or (numpy[1] != numpy_after[1]).any()):
            raise Drew


class OneNumber(TorchDispatchMode):
    """Within, every random operator draws the same number, for any shape: what a record draws does not depend on how many
    records or positions there are. An operator that is not known is rejected; `drawn` says whether there were any, and
    `chosen` whether values chose a shape or what the code does."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = self.chosen = False

    begin, end = AsDrawn.begin, AsDrawn.end

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if torch.Tag.nondeterministic_seeded not in func.tags and name not in UNTAGGED:
            self.chosen |= torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags
            return func(*args, **kwargs)
        if name in ("native_dropout",) and args[2] is False or name.startswith("_scaled_dot_product") \
                or name.startswith("_dropout"):
            return func(*args, **kwargs)
        self.drawn = True
        new = getattr(self, "of_" + name.removesuffix("_"), None)
        if new is None:
            refuse(f"self-check: the module draws random numbers with {func}, whose draws cannot be repeated for one record "
                   "alone; draw them with torch.rand, torch.randn, torch.bernoulli or dropout instead")
        return new(func, args, kwargs)

    @staticmethod
    def _fill(func, args, kwargs, value):
        """The result of the operator, filled: in place, or a new tensor of its shape and type."""
        if func.overloadpacket.__name__.endswith("_"):
            return args[0].copy_(value(args[0])) if callable(value) else args[0].fill_(value)
        out = func(*args, **kwargs)
        return out.copy_(value(out)) if callable(value) else out.fill_(value)

    def of_native_dropout(self, func, args, kwargs):
        x, p = args[0], args[1]
        return x / (1 - p) if p < 1 else x * 0, torch.ones_like(x, dtype=torch.bool)

    def of_bernoulli(self, func, args, kwargs):
        p = args[1] if len(args) > 1 and args[1] is not None else kwargs.get("p")
        if func.overloadpacket.__name__ == "bernoulli_" or p is not None:
            return self._fill(func, args, kwargs, lambda x: _probability(x, 0.5 if p is None else p))
        return _probability(args[0], args[0]).clone()

    def of_rand(self, func, args, kwargs):
        return self._fill(func, args, kwargs, UNIFORM)

    of_rand_like = of_rand

    def of_randn(self, func, args, kwargs):
        return self._fill(func, args, kwargs, NORMAL)

    of_randn_like = of_randn

    def of_randint(self, func, args, kwargs):
        low, high = _low_high([x for x in args if isinstance(x, int)])
        return self._fill(func, args, kwargs, low + int(UNIFORM * (high - low)))

    of_randint_like = of_randint

    def of_random(self, func, args, kwargs):
        ends = [x for x in args[1:] if isinstance(x, int)] or [2]
        low, high = _low_high(ends)
        return self._fill(func, args, kwargs, low + int(UNIFORM * (high - low)))

    def of_randperm(self, func, args, kwargs):
        # Not the identity, which would hide records that are exchanged.
        return self._fill(func, args, kwargs, lambda x: torch.arange(x.numel(), dtype=x.dtype).roll(1))

    def of_uniform(self, func, args, kwargs):
        low, high = (*args[1:], *(0.0, 1.0)[len(args) - 1:])
        return self._fill(func, args, kwargs, kwargs.get("from", low) + UNIFORM * (kwargs.get("to", high) - low))

    def of_normal(self, func, args, kwargs):
        if func.overloadpacket.__name__ == "normal_":
            mean, std = (*args[1:3], *(0.0, 1.0)[len(args) - 1:])
            return self._fill(func, args, kwargs, kwargs.get("mean", mean) + NORMAL * kwargs.get("std", std))
        mean, std = (*args[:2], *(0.0, 1.0)[len(args):])[:2]
        return self._fill(func, args, kwargs, lambda x: torch.as_tensor(mean + NORMAL * torch.as_tensor(std)).expand_as(x))

    def of_normal_functional(self, func, args, kwargs):
        return torch.full_like(args[0], NORMAL)

    def of_exponential(self, func, args, kwargs):
        return self._fill(func, args, kwargs, 0.5)

    of_log_normal = of_cauchy = of_geometric = of_exponential

    def of_poisson(self, func, args, kwargs):
        return args[0].round()

    def of_binomial(self, func, args, kwargs):
        return (args[0] * args[1]).round()

    def of_multinomial(self, func, args, kwargs):
        return args[0].topk(args[1], -1).indices if args[1] <= args[0].shape[-1] else \
            args[0].argmax(-1, keepdim=True).expand(*args[0].shape[:-1], args[1]).clone()

    def of_rrelu_with_noise(self, func, args, kwargs):
        x, noise, low, high = (*args, *(1 / 8, 1 / 3)[len(args) - 2:])[:4]
        training = args[4] if len(args) > 4 else kwargs.get("training", False)
        slope = low + UNIFORM * (high - low) if training else (low + high) / 2
        noise.copy_(torch.where(x <= 0, slope, 1.0).to(noise.dtype))
        out = x * noise
        return x.copy_(out) if func.overloadpacket.__name__.endswith("_") else out

    of_rrelu_with_noise_functional = of_rrelu_with_noise
