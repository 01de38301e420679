"""A record has one place in the data set, and a batch without records is as any other."""

import copy
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, random_split  # noqa: E402

import discreet  # noqa: E402
from discreet.torch import PrivacyEngine  # noqa: E402
from discreet.torch.dataset import most_places  # noqa: E402

torch.set_num_threads(1)
ROWS = 40
X = torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()
BASE = TensorDataset(X, Y)


class Wrapped(Dataset):
    """As users write around a data set, for a transform."""

    def __init__(self, inner, factor=1.0):
        self.inner, self.factor = inner, factor

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, i):
        x, y = self.inner[i]
        return self.factor * x, y


class Pairs(Dataset):
    """A data set whose records cannot be determined."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __len__(self):
        return len(self.a)

    def __getitem__(self, i):
        return self.a[i][0], self.b[i][0]


def make(dataset=BASE, *, module=None, batch=8, noise=1.0, sampling="poisson", **options):
    torch.manual_seed(3)
    module = module or nn.Linear(6, 2)
    engine = PrivacyEngine(insecure_seed=options.pop("seed", None))
    return engine, *engine.make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1), sampling=sampling, noise_multiplier=noise,
        data_loader=DataLoader(dataset, batch_size=batch, shuffle=True), max_grad_norm=1.0, **options)


class Repeated(Dataset):
    def __init__(self, dataset, times):
        self.dataset, self.times = dataset, times

    def __len__(self):
        return len(self.dataset) * self.times

    def __getitem__(self, i):
        return self.dataset[i // self.times]


HALVES = random_split(BASE, [20, 20], generator=torch.Generator().manual_seed(1))
REPEATED = {
    "a Subset with one index twice": (Subset(BASE, [*range(ROWS), 3]), 2),
    "one record only": (Subset(BASE, [0] * ROWS), ROWS),
    "an index counted from the end": (Subset(BASE, [*range(ROWS), -1]), 2),
    "indices as a tensor": (Subset(BASE, torch.tensor([0, 1, 2, 2, 2])), 3),
    "a Subset of a Subset": (Subset(Subset(BASE, [0, 1, 2]), [0, 1, 1, 2]), 2),
    "a Subset of what repeats": (Subset(Subset(BASE, [5, 5, 6, 7]), [0, 1, 2]), 2),
    "a data set twice": (ConcatDataset([BASE, BASE]), 2),
    "overlapping Subsets": (ConcatDataset([Subset(BASE, range(25)), Subset(BASE, range(20, 40))]), 2),
    "nested concatenation": (ConcatDataset([ConcatDataset([HALVES[0]]), Subset(BASE, range(40))]), 2),
    "a Subset of a concatenation": (Subset(ConcatDataset([BASE, BASE]), [0, 1, ROWS]), 2),
    "two data sets of the same tensors": (ConcatDataset([BASE, TensorDataset(X, Y)]), 2),
    "overlapping views": (ConcatDataset([TensorDataset(X[:25], Y[:25]), TensorDataset(X[20:], Y[20:])]), 2),
    "an expanded tensor": (TensorDataset(X[:1].expand(ROWS, 6), Y), ROWS),
    "two wrappers of one data set": (ConcatDataset([Wrapped(BASE), Wrapped(BASE, -1.0)]), 2),
    "a data set and its wrapper": (ConcatDataset([BASE, Wrapped(BASE)]), 2),
    "wrapped overlapping Subsets": (ConcatDataset([Wrapped(Subset(BASE, range(25))), Subset(BASE, range(20, 40))]), 2),
    "overlapping windows": (TensorDataset(torch.arange(50.0).unfold(0, 6, 1), torch.zeros(45)), 6),
    "windows that overlap by one": (TensorDataset(torch.arange(50.0).unfold(0, 6, 5)), 2),
    "overlapping windows of targets": (TensorDataset(X, torch.arange(49.0).unfold(0, 10, 1)), 10),
    "some windows that overlap": (Subset(TensorDataset(torch.arange(50.0).unfold(0, 6, 1)), [0, 4, 20]), 2),
    "a data set that repeats another": (Repeated(BASE, 3), 3),
    "a part of a data set that repeats another": (Subset(Repeated(BASE, 3), [0, 1, 2]), 2),
    "a wrapper of two, and one of them": (ConcatDataset([Pairs(BASE, TensorDataset(Y)), BASE]), 2),
}
ONCE = {
    "itself": BASE,
    "a split": HALVES[0],
    "both halves": ConcatDataset(list(HALVES)),
    "a permutation": Subset(BASE, torch.randperm(ROWS).tolist()),
    "views": ConcatDataset([TensorDataset(X[:20], Y[:20]), TensorDataset(X[20:], Y[20:])]),
    "half of a concatenation": Subset(ConcatDataset([BASE, BASE]), range(ROWS)),
    "a wrapper": Wrapped(BASE),
    "wrapped halves": ConcatDataset([Wrapped(TensorDataset(X[:20], Y[:20])), Wrapped(TensorDataset(X[20:], Y[20:]))]),
    "wrapped parts of a split": ConcatDataset([Wrapped(half, factor) for half, factor in zip(HALVES, (1.0, -1.0))]),
    "two data sets": ConcatDataset([BASE, TensorDataset(X.clone(), Y)]),
    "columns": TensorDataset(torch.randn(6, ROWS).t(), Y),
    "windows that do not overlap": TensorDataset(torch.arange(60.0).unfold(0, 6, 6)),
    "every sixth window": Subset(TensorDataset(torch.arange(60.0).unfold(0, 6, 1)), range(0, 55, 6)),
    "windows within records": TensorDataset(torch.randn(ROWS, 9).unfold(1, 6, 1), Y),
    "expanded within records": TensorDataset(torch.randn(ROWS, 1, 6).expand(ROWS, 3, 6), Y),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_record_at_several_places_is_refused(name):
    dataset, places = REPEATED[name]
    assert most_places(dataset) >= places
    with pytest.raises(discreet.Error, match="one record has .* places"):
        make(dataset, batch=3)


@pytest.mark.parametrize("name", ONCE)
def test_records_at_one_place_are_served(name):
    assert most_places(ONCE[name]) == 1
    make(ONCE[name], batch=3)


def test_overlaps_of_rows_are_counted_as_their_addresses_are():
    rng, memory, found = np.random.default_rng(2), torch.arange(4000), set()
    for _ in range(500):
        shape, strides = rng.integers(1, 7, 3).tolist(), rng.choice([0, 1, 2, 3, 5, 6, 12, 30, 60], 3).tolist()
        x = torch.as_strided(memory, shape, strides)
        counts = {}
        for row in x:
            for address in set(row.flatten().tolist()):
                counts[address] = counts.get(address, 0) + 1
        most = max(counts.values())
        found.add(most)
        assert most_places(TensorDataset(x)) == most, (shape, strides)
    assert found == {1, 2, 3, 4, 5, 6}


def test_it_agrees_with_counting_by_hand():
    rng = np.random.default_rng(1)
    for _ in range(300):
        def drawn(depth):
            if depth == 0 or rng.random() < 0.2:
                return BASE
            if rng.random() < 0.5:
                inner = drawn(depth - 1)
                return Subset(inner, rng.integers(-len(inner), len(inner), rng.integers(1, 8)).tolist())
            return ConcatDataset([drawn(depth - 1) for _ in range(rng.integers(1, 3))])
        dataset = drawn(3)
        counts = {}
        for x, _ in dataset:
            counts[x.data_ptr()] = counts.get(x.data_ptr(), 0) + 1
        assert most_places(dataset) == max(counts.values())


def test_millions_of_indices_take_a_moment():
    class Many(Dataset):
        def __len__(self):
            return 5_000_000

    start = time.perf_counter()
    assert most_places(Subset(Many(), np.arange(5_000_000))) == 1 and most_places(Subset(Many(), range(5_000_000))) == 1
    assert time.perf_counter() - start < 10


# ---------------------------------------------------------------- batches without records


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, 2)

    def forward(self, x):
        x = x.unsqueeze(1) * torch.ones(3, 1)
        return self.head(self.attention(x, x, x)[0].mean(1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.body(x.unsqueeze(1) * torch.ones(3, 1)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.LSTM(6, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x.unsqueeze(1) * torch.ones(3, 1))[0][:, -1])


MODULES = {"linear": lambda: nn.Linear(6, 2), "attention": Attention, "encoder": Encoder, "lstm": Recurrent,
           "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))}


def handed_out(engine):
    """Records that the loader says it drew, by piece."""
    drawn, own = [], engine._loader._hand_out
    engine._loader._hand_out = lambda *piece: (drawn.append(piece[3]), own(*piece))
    return drawn


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_an_empty_batch_is_as_any_other_and_adds_nothing(name, clipping):
    engine, module, optimizer, private = make(module=MODULES[name](), batch=1, noise=0, clipping=clipping, seed=4)
    drawn = handed_out(engine)
    for x, y in private:
        optimizer.zero_grad()
        loss = F.cross_entropy(module(x), y)
        assert len(x) >= 1 and torch.isfinite(loss)
        loss.backward()
        optimizer.step()
        gradient = torch.cat([p.grad.flatten() for p in module.parameters()])
        assert torch.any(gradient != 0) == (drawn[-1] > 0), "a record that was not drawn entered the sum"
    assert 0 in drawn and len(engine.accountant) == ROWS


def test_an_empty_batch_adds_nothing_whatever_the_record_gives():
    engine, module, optimizer, private = make(batch=1, noise=0, nonfinite="abort", seed=4)
    drawn = handed_out(engine)
    for x, y in private:
        empty = drawn[-1] == 0
        (F.cross_entropy(module(x), y) * (float("nan") if empty else 1.0)).backward()
        optimizer.step()
        assert all(torch.all(p.grad == 0) == empty for p in module.parameters())
    assert 0 in drawn


def test_mistakes_in_an_empty_batch_are_refused_as_in_any_other():
    engine, module, optimizer, private = make(batch=1, seed=4)
    drawn = handed_out(engine)
    said = {True: set(), False: set()}
    for x, y in private:
        with pytest.raises(discreet.Error) as skipped:
            optimizer.step()
        loss = F.cross_entropy(module(x), y)
        loss.backward(retain_graph=True)
        with pytest.raises(discreet.Error) as twice:
            loss.backward()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
        if len(x) == 1:
            said[drawn[-1] == 0].add((skipped.value.sentence, twice.value.sentence))
    assert said[True] == said[False] and len(said[True]) == 1


def test_empty_pieces_and_adaptive_bounds():
    engine, module, optimizer, private = make(batch=1, clipping="adaptive", gradient_accumulation_steps=3, seed=2)
    drawn = handed_out(engine)
    for x, y in private:
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    assert 0 in drawn and len(engine.accountant) * 3 == len(drawn)
    engine, module, optimizer, private = make(batch=2, noise=0, gradient_accumulation_steps=4, seed=2)
    plain, total = copy.deepcopy(module), torch.zeros(2, 6)
    drawn = handed_out(engine)
    for x, y in private:
        F.cross_entropy(module(x), y).backward()
        for one, label in zip(x, y) if drawn[-1] else ():
            g = torch.autograd.grad(F.cross_entropy(plain(one[None]), label[None]), list(plain.parameters()))
            norm = torch.cat([part.flatten() for part in g]).norm()
            total += g[0] * min(1.0, 1 / norm)
        optimizer.step()
        if engine._batch.open is False:
            break
    torch.testing.assert_close(module.weight.grad * 8, total, rtol=1e-4, atol=1e-6)
