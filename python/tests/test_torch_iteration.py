"""A record enters a step once, and only in the step that drew it."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")
from test_torch_engine import loader, make  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import discreet  # noqa: E402

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
    # The second iterator started the batch again: a step holds at most one copy of it.
    assert engine._session.t() <= 1 and engine._batch.seen <= engine._batch.handed


def test_a_piece_that_is_not_the_next_is_rejected():
    engine, module, optimizer, private = make(gradient_accumulation_steps=2, data_loader=loader(batch=20))
    batches = iter(private)
    backward(module, next(batches))
    for piece in (0, 2):
        with pytest.raises(discreet.Error, match="piece 1 is expected"):
            engine._hand_out(engine._iterator, 0, piece, 20, True)
    backward(module, next(batches))
    optimizer.step()


class Scale(nn.Module):
    """A module without a rule."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(5))

    def forward(self, x):
        return x * self.weight


def sequences():
    return torch.randn(60, 1, 5, generator=torch.Generator().manual_seed(2))


MODULES = {
    "conv": (lambda: nn.Sequential(nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Flatten()), sequences),
    "linear": (lambda: nn.Linear(5, 2), lambda: sequences()[:, 0]),
    "embedding": (lambda: nn.Embedding(7, 3), lambda: torch.arange(180).reshape(60, 3) % 7),
    "generic": (Scale, lambda: sequences()[:, 0])}


@pytest.mark.parametrize("kind", MODULES)
def test_a_graph_of_an_earlier_batch_is_rejected(kind):
    module, records = (f() for f in MODULES[kind])
    # Every batch has all records: the sizes of batches do not give it away.
    engine, module, optimizer, private = make(module, DataLoader(TensorDataset(records), batch_size=60, shuffle=True))
    (x,) = next(iter(private))
    old = module(x).square().flatten(1).sum(1).mean()
    old.backward(retain_graph=True)
    optimizer.step()
    for (x,) in private:
        with pytest.raises(discreet.Error, match="a graph from before the loader's last batch.*"
                           "Do not feed outputs or states of earlier batches into the next, not even detached ones"):
            old.backward(retain_graph=True)
        assert engine._batch.seen == 0
        module(x).square().flatten(1).sum(1).mean().backward()
        optimizer.step()


def test_losses_of_pieces_cannot_wait_for_the_last_one():
    # Two pieces of 200 records each: that of the first looks like the second.
    _, module, optimizer, private = make(gradient_accumulation_steps=2, data_loader=loader(batch=200))
    losses = [F.cross_entropy(module(x), y) for x, y in private]
    assert len(losses) == 2
    with pytest.raises(discreet.Error, match="before the loader's last batch"):
        sum(losses).backward()


class Tokens(nn.Module):
    """A layer that is given all tokens in one dimension; batches are padded to their longest record."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x.reshape(-1, 3)).reshape(x.shape[0], -1, 2).sum(1)


class Lengths(torch.utils.data.Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, i):
        return torch.full((1 + i % 4, 3), i / 60.0)


def padded(parts):
    return nn.utils.rnn.pad_sequence(parts, batch_first=True)


def tokens():
    torch.manual_seed(4)
    return make(Tokens(), DataLoader(Lengths(), batch_size=20, shuffle=True, collate_fn=padded),
                example_inputs=(torch.randn(4, 3, 3),), noise_multiplier=0)


def test_evaluating_between_forward_and_backward_changes_nothing():
    released = []
    for evaluate in (False, True):
        engine, module, optimizer, private = tokens()
        assert engine._clipper.sites[0].leading.products
        x = next(iter(private))
        loss = module(x).square().sum(1).mean()
        if evaluate:
            other = torch.randn(2, 9, 3)
            with torch.no_grad():
                module(other)
            copy.deepcopy(module)(other)
            module(torch.randn(len(x), 9, 3))  # without a backward pass
        loss.backward()
        optimizer.step()
        released.append(module.layer.weight.grad.clone())
    assert torch.allclose(*released, rtol=1e-5)  # a layer used twice rounds in another order


def test_a_private_module_can_be_pickled_where_rows_are_counted_by_inputs():
    _, module, _, _ = tokens()
    for own in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        x = torch.randn(5, 7, 3)
        with torch.no_grad():
            assert torch.equal(own(x), module(x))
        own(x).sum().backward()
        assert own.layer.weight.grad is not None
    kept = io.BytesIO()
    torch.save(module, kept)
