"""A record enters a step once, and only in the step that drew it."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import discreet  # noqa: E402
from test_torch_engine import loader, make  # noqa: E402

torch.set_num_threads(1)


def backward(module, batch):
    x, y = batch
    F.cross_entropy(module(x), y).backward()


WORKERS = {"num_workers": 1, "persistent_workers": True}


@pytest.mark.parametrize("options", [{}, WORKERS])
def test_only_the_iterator_that_was_started_last_gives_batches(options):
    _, module, optimizer, private = make(data_loader=loader(**options))
    before = [iter(private) for _ in range(3)]
    for one in before:
        next(one)
    current = iter(private)
    backward(module, next(current))
    optimizer.step()
    for one in before:
        with pytest.raises(discreet.Error, match="two iterators of the private loader"):
            next(one)
    backward(module, next(current))  # as if the others had not been
    optimizer.step()


@pytest.mark.parametrize("options", [{}, {"max_physical_batch_size": 10}])
def test_a_batch_of_a_second_iterator_does_not_enter_a_step_twice(options):
    engine, module, optimizer, private = make(**options)
    second = iter(private)
    with pytest.raises(discreet.Error, match="two iterators of the private loader"):
        for batch in private:
            backward(module, batch)
            backward(module, next(second))
            optimizer.step()
    # The second iterator began the batch anew: a step holds at most one copy of it.
    assert engine._session.t() <= 1 and engine._seen <= engine._handed


def test_a_piece_that_is_not_the_next_is_rejected():
    engine, module, optimizer, private = make(gradient_accumulation_steps=2, data_loader=loader(batch=20))
    batches = iter(private)
    backward(module, next(batches))
    for piece in (0, 2):
        with pytest.raises(discreet.Error, match="piece 1 is expected"):
            engine._hand_out(engine._iterator, 0, piece, 20, True)
    backward(module, next(batches))
    optimizer.step()
