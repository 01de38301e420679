"""Couplings outside of the module's layers: losses, criteria, outputs in objects, collate functions, modes and lengths."""

import dataclasses

import pytest

torch = pytest.importorskip("torch")
from test_torch_engine import BATCH, make  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402

import discreet  # noqa: E402
from discreet.torch import PrivacyEngine  # noqa: E402
from discreet.torch.selfcheck import memory  # noqa: E402

torch.set_num_threads(1)

X, LABELS, WEIGHTS = torch.randn(40, 4), torch.zeros(40, dtype=torch.long), torch.rand(40)
PAIRS = TensorDataset(X, LABELS)


def of(dataset, collate=None):
    return DataLoader(dataset, batch_size=BATCH, shuffle=True, collate_fn=collate)


class Module(nn.Module):
    """A linear layer, and a function of its output and the other inputs."""

    def __init__(self, function=lambda z: z):
        super().__init__()
        self.layer, self.function = nn.Linear(4, 3), function

    def forward(self, x, *others):
        return self.function(self.layer(x), *others)


# ---------------------------------------------------------------- losses in the module

class TokenLoss(nn.Module):
    def __init__(self, per_record=False):
        super().__init__()
        self.table, self.head, self.per_record = nn.Embedding(12, 6), nn.Linear(6, 12), per_record

    def forward(self, ids, labels):
        logits = self.head(self.table(ids))
        if self.per_record:
            return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(1).mean()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def test_ignored_labels_are_tried_in_data_sets_of_tuples():
    ids = torch.ones(40, 6, dtype=torch.long)
    with pytest.raises(discreet.Error, match="loss that couples records"):
        make(TokenLoss(), of(TensorDataset(ids, ids)))
    make(TokenLoss(per_record=True), of(TensorDataset(ids, ids)))
    make(TokenLoss(), of(TensorDataset(ids, ids)), example_inputs=(torch.randint(0, 12, (6, 6)), torch.randint(0, 12, (6, 6))))


def test_an_ignored_label_is_tried_where_a_record_has_only_one():
    with pytest.raises(discreet.Error, match="loss that couples records"):
        make(Module(F.cross_entropy), of(PAIRS))
    make(Module(lambda z, y: F.cross_entropy(z, y, reduction="none").mean()), of(PAIRS))
    make(Module(F.cross_entropy), of(PAIRS), example_inputs=(torch.randn(6, 4), torch.arange(6) % 3))


# ---------------------------------------------------------------- criteria

class Named(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return {"x": X[i], "label": LABELS[i]}


TRIPLES = TensorDataset(X, LABELS, LABELS)
UNEQUAL = torch.tensor([1.0, 1.0, 1000.0])


def spread(outputs, targets):
    return F.cross_entropy(outputs - 10 * outputs.mean(0), targets)


@pytest.mark.parametrize("criterion, options", [
    (nn.CrossEntropyLoss(weight=UNEQUAL), {}),
    (lambda z, y: F.cross_entropy(z, y, weight=UNEQUAL), {}),
    (nn.CrossEntropyLoss(ignore_index=-1), {}),
    (nn.CrossEntropyLoss(ignore_index=2), {}),
    (lambda z, y: F.cross_entropy(z, y, ignore_index=-1), {}),
    (lambda z, y: F.cross_entropy(z - 1e-5 * z.mean(0), y), {}),
    (lambda z, y: F.cross_entropy(z - z.mean(0), y, reduction="none"), {}),
    (spread, {"module": Module(lambda z, _: z), "data_loader": of(TRIPLES)}),
    (spread, {"data_loader": of(Named())}),
    (spread, {"example_inputs": (torch.randn(6, 4),)}),
])
def test_a_criterion_that_couples_records_is_found(criterion, options):
    with pytest.raises(discreet.Error, match="criterion couples records"):
        make(**{"module": Module(), "data_loader": of(PAIRS)} | options, criterion=criterion)


@pytest.mark.parametrize("criterion, options", [
    (nn.CrossEntropyLoss(), {}),
    (nn.CrossEntropyLoss(label_smoothing=0.1), {}),
    (nn.CrossEntropyLoss(weight=UNEQUAL, ignore_index=-1, reduction="sum"), {"loss_reduction": "sum"}),
    (lambda z, y: (UNEQUAL[y] * F.cross_entropy(z, y, reduction="none")).mean(), {}),
    (nn.CrossEntropyLoss(), {"module": Module(lambda z, _: z), "data_loader": of(TRIPLES)}),
    (nn.CrossEntropyLoss(), {"data_loader": of(Named())}),
    (nn.CrossEntropyLoss(), {"example_inputs": (torch.randn(6, 4),)}),
    (nn.MSELoss(), {"data_loader": of(TensorDataset(X, torch.randn(40, 3)))}),
])
def test_a_criterion_of_one_number_a_record_is_accepted(criterion, options):
    make(**{"module": Module(), "data_loader": of(PAIRS)} | options, criterion=criterion)


def centred_above(most):
    return lambda outputs, targets: F.cross_entropy(outputs - (outputs.mean(0) if len(outputs) > most else 0), targets)


def test_a_criterion_that_couples_records_of_large_batches_is_found():
    with pytest.raises(discreet.Error, match="criterion couples records"):
        make(Module(), of(PAIRS), criterion=centred_above(8))
    # No piece is so large.
    make(Module(), of(PAIRS), criterion=centred_above(8), max_physical_batch_size=8)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_losses_of_many_records_are_those_of_each_up_to_rounding(reduction):
    x = torch.randn(600, 4)
    loader = DataLoader(TensorDataset(x, torch.zeros(600, dtype=torch.long)), batch_size=600, shuffle=True)
    make(Module(), loader, loss_reduction=reduction, criterion=nn.CrossEntropyLoss(reduction=reduction))
    make(Module(lambda z: getattr(z.square().sum(1), reduction)()), loader, loss_reduction=reduction)


def test_a_criterion_that_cannot_be_judged_is_rejected():
    with pytest.raises(discreet.Error, match="cannot be checked"):
        make(Module(), of(PAIRS), criterion=lambda outputs, targets, teacher: outputs.mean())


# ---------------------------------------------------------------- outputs in objects

@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    extra: object = None


def test_outputs_in_objects_are_judged_and_closures_rejected():
    make(Module(Output), of(PAIRS))
    with pytest.raises(discreet.Error, match="output.extra is a loss that couples"):
        make(Module(lambda z: Output(z, z.amax(0).sum())), of(PAIRS))
    with pytest.raises(discreet.Error, match="output.extra is a function"):
        make(Module(lambda z: Output(z, lambda: z.mean(0))), of(PAIRS))


# ---------------------------------------------------------------- collate functions

def columns(records):
    return [torch.stack(column) for column in zip(*records)]


def standardized(records):
    x, y = columns(records)
    return x, (y - y.mean()) / (y.std(unbiased=False) + 1e-6)


def shifted(records):
    x, y = columns(records)
    return x, y.roll(1)


def mixed(records):
    x, y = columns(records)
    return (x + x[torch.randperm(len(x))]) / 2, y


def largest(records):
    x, y = columns(records)
    return x, y, y.max().item()


@pytest.mark.parametrize("collate", [standardized, shifted, mixed, largest])
def test_a_collate_function_that_couples_records_is_rejected(collate):
    for options in ({}, {"example_inputs": (torch.randn(6, 4),)}):
        with pytest.raises(discreet.Error, match="collate function couples records"):
            make(Module(lambda z, *_: z), of(TensorDataset(X, WEIGHTS), collate), **options)


class Ragged(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return torch.ones(3 + i % 4, dtype=torch.long)


def padded(records, left=False):
    rows = [row.flip(0) for row in records] if left else records
    out = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return out.flip(1) if left else out, torch.tensor([len(row) for row in records])


def masked(records):
    ids, _ = padded(records)
    hidden = torch.bernoulli(torch.full(ids.shape, 0.3)).bool()
    return ids.masked_fill(hidden, 3), ids.masked_fill(~hidden, -100)


@pytest.mark.parametrize("collate", [padded, masked])
def test_padding_and_draws_of_a_collate_function_are_accepted(collate):
    make(nn.Sequential(nn.Embedding(12, 6), nn.Linear(6, 3)), of(Ragged(), collate))


def test_a_collate_function_may_return_a_list_of_records():
    lists = lambda records: (torch.stack([x for x, _ in records]), [{"label": y} for _, y in records])  # noqa: E731
    make(Module(), of(PAIRS, lists))


# ---------------------------------------------------------------- lengths, modes and memory

class Sorted(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, lengths):
        order = lengths.argsort(descending=True, stable=True)
        z = self.second(torch.tanh(self.first(x))[order])[order.argsort(stable=True)]
        return (z * (torch.arange(x.shape[1]) < lengths[:, None])[..., None]).sum(1) / lengths[:, None]


def test_sorting_by_length_is_found():
    with pytest.raises(discreet.Error, match="second.weight"):
        make(Sorted(), of(TensorDataset(torch.randn(40, 5, 4), LABELS + 1, WEIGHTS)))


class CentredInEvaluation(nn.Linear):
    def forward(self, x):
        return super().forward(x if self.training else x - x.mean(0))


def test_a_module_is_judged_in_the_mode_in_which_it_is_given():
    make(CentredInEvaluation(4, 3), of(PAIRS))
    with pytest.raises(discreet.Error, match="in eval mode.*mixes.*records.*module.train()"):
        make(CentredInEvaluation(4, 3).eval(), of(PAIRS))
    make(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 3)).eval(), of(PAIRS))


def test_a_module_too_large_to_be_searched_is_rejected(monkeypatch):
    monkeypatch.setattr(memory, "LIMIT", 2000)
    module = Module()
    module.table = [(i,) for i in range(2100)]
    with pytest.raises(discreet.Error, match="more than 2,000 objects"):
        make(module, of(PAIRS))


@pytest.mark.parametrize("order", [lambda h: torch.randperm(len(h)), lambda h: torch.rand(len(h)).argsort(),
                                   lambda h: torch.randint(len(h), (len(h),))])
def test_records_that_are_exchanged_at_random_are_rejected(order):
    class Mixup(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x):
            h = torch.tanh(self.first(x))
            return self.last(0.7 * h + 0.3 * h[order(h)])

    data = TensorDataset(torch.randn(40, 4, generator=torch.Generator().manual_seed(1)), torch.zeros(40).long())
    for seed in range(3):
        torch.manual_seed(seed)
        module = Mixup()
        with pytest.raises(discreet.Error, match="self-check"):
            PrivacyEngine(insecure_seed=seed).make_private(
                module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1), noise_multiplier=1.0,
                data_loader=DataLoader(data, batch_size=10, shuffle=True))
