"""Copies of the self-check: used again only where a pass left them as they were."""

import random

import pytest

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
from test_torch_engine import make  # noqa: E402
from torch import nn  # noqa: E402

import discreet  # noqa: E402
from discreet.torch.selfcheck import draws  # noqa: E402
from discreet.torch.selfcheck.twins import Twins  # noqa: E402


class Keeps(nn.Module):
    """Does something to itself with every pass."""

    def __init__(self, act):
        super().__init__()
        self.layer, self.act = nn.Linear(6, 2), act
        self.register_buffer("buffer", torch.zeros(2))
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.number, self.items, self.table, self.deep = 0, [], {}, {"a": [[1]]}

    def forward(self, x):
        self.act(self)
        return self.layer(x)


ACTS = {
    "buffer": lambda m: m.buffer.add_(1), "buffer_data": lambda m: m.buffer.data.add_(1),
    "buffer_replaced": lambda m: setattr(m, "buffer", m.buffer + 1), "frozen": lambda m: m.frozen.data.add_(1),
    "number": lambda m: setattr(m, "number", m.number + 1), "large_number": lambda m: setattr(m, "number", m.number + 10**9),
    "list": lambda m: m.items.append(1), "dictionary": lambda m: m.table.update(a=1),
    "deep": lambda m: m.deep["a"][0].append(2),
    "attribute": lambda m: setattr(m, "new", 1), "same_shape": lambda m: setattr(m, "items", []),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_copy_that_a_pass_changed_is_not_used_again(act):
    twins = Twins(Keeps(act))
    first = twins.new()
    first(torch.zeros(1, 6))
    twins.give_back(first)
    assert twins.new() is not first


def test_a_copy_that_a_pass_left_as_it_was_is_used_again():
    module = Keeps(lambda m: None)
    twins = Twins(module)
    first = twins.new()
    first(torch.zeros(1, 6)).sum().backward()
    assert twins.new() is not first  # it is not given back
    twins.give_back(first)
    assert twins.new() is first and first.layer.weight is module.layer.weight


def test_a_module_that_holds_other_objects_is_copied_for_every_pass():
    module = Keeps(lambda m: None)
    module.other = type("Other", (), {})()
    twins = Twins(module)
    first = twins.new()
    twins.give_back(first)
    assert twins.new() is not first


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), random.random, lambda: numpy.random.bytes(4 * 624)],
                         ids=["torch", "random", "numpy"])
def test_a_draw_where_none_is_expected_is_noticed(draw):
    with draws.kept():
        mode = draws.NoneDrawn()
        mode.begin(1)
        mode.end()
        mode.begin(1)
        draw()
        with pytest.raises(draws.Drew):
            mode.end()


def test_a_module_that_draws_in_batches_of_one_size_only_is_rejected():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(6, 4), nn.Linear(4, 2)

        def forward(self, x):
            h = torch.tanh(self.layer(x))
            return self.head(h + 0.1 * torch.rand(1, 1) if len(x) == 4 else h)  # with one record left out of five

    with pytest.raises(discreet.Error, match="depends on how many"):
        make(Sometimes())
