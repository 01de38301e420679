"""What the self-check of make_private rejects, and what it must not reject."""

import pytest

torch = pytest.importorskip("torch")
from test_torch_engine import BATCH, ROWS, make, network, steps, weights_of  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import discreet  # noqa: E402
from discreet.torch import PrivacyEngine, validate  # noqa: E402
from discreet.torch.clipper import Clipper  # noqa: E402

torch.set_num_threads(1)


class Between(nn.Module):
    """Two layers and a function between them; rooted: below a parameter of the root, which makes it one layer without a
    rule."""

    def __init__(self, function, rooted=False):
        super().__init__()
        self.first, self.second, self.function = nn.Linear(6, 8), nn.Linear(8, 2), function
        self.gain = nn.Parameter(torch.ones(2)) if rooted else 1.0

    def forward(self, x):
        return self.second(self.function(torch.tanh(self.first(x)))) * self.gain


def standardized(h):
    return (h - h.mean(0)) / (h.std(0, correction=0) + 0.1)


def drop_path(h, p=0.3):
    return h * (torch.rand(len(h), 1) > p).to(h.dtype) / (1 - p)


def words(rows=ROWS, length=7, high=12):
    g = torch.Generator().manual_seed(5)
    ids = torch.randint(1, high, (rows, length), generator=g)
    ids[torch.arange(length) >= torch.randint(2, length + 1, (rows, 1), generator=g)] = 0
    return DataLoader(TensorDataset(ids, ids[:, 0] % 2), batch_size=BATCH, shuffle=True)


# ---------------------------------------------------------------- layers at every depth

class Rooted(nn.Module):
    def __init__(self, *inside):
        super().__init__()
        self.gain, self.inside = nn.Parameter(torch.ones(2)), nn.ModuleList(inside)
        self.layers = [inside[0]]

    def forward(self, x):
        for one in self.inside:
            x = one(x)
        return x * self.gain


@pytest.mark.parametrize("inside, words", [
    (lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), "BatchNorm1d"),
    (lambda: nn.Sequential(nn.Linear(6, 4), nn.SyncBatchNorm(4), nn.Linear(4, 2)), "SyncBatchNorm"),
    (lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, affine=False, track_running_stats=False).eval(),
                           nn.Linear(4, 2)), "BatchNorm1d"),
    (lambda: nn.Sequential(nn.Linear(6, 4), nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True)),
     "running"),
    (lambda: nn.Sequential(nn.Embedding(5, 3, max_norm=0.1).requires_grad_(False), nn.Linear(3, 2)), "max_norm"),
    (lambda: nn.Sequential(nn.LazyLinear(2)), "have no shape yet"),
])
def test_layers_are_checked_below_a_parameter_of_the_root(inside, words):
    assert words in str(validate(Rooted(inside()))[0])
    with pytest.raises(discreet.Error, match=words):
        make(Rooted(inside()))


def test_layers_outside_of_the_tree_are_checked_and_all_faults_are_reported():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.kept = nn.Linear(6, 2), {"norms": [nn.BatchNorm1d(6)]}
            self.table = nn.Embedding(4, 6, max_norm=1.0)

        def forward(self, x):
            return self.head(self.kept["norms"][0](x))

    found = " ".join(map(str, validate(Hidden())))
    assert "BatchNorm1d" in found and "max_norm" in found and "kept['norms'][0]" in found
    with pytest.raises(discreet.Error, match="BatchNorm1d|max_norm"):
        make(Hidden())


# ---------------------------------------------------------------- mixing

MIXING = {
    "statistics": standardized,
    "statistics_and_dropout": lambda h: F.dropout(standardized(h), 0.2),
    "statistics_and_noise": lambda h: standardized(h) + 0.01 * torch.randn_like(h),
    "statistics_and_drop_path": lambda h: h + drop_path(standardized(h)),
    "count": lambda h: h / len(h) ** 0.5,
    "count_and_noise": lambda h: h / len(h) ** 0.5 + 1e-3 * torch.randn_like(h),
    "random_partner": lambda h: 0.7 * h + 0.3 * h[torch.randperm(len(h))],
    "largest": lambda h: h / h.abs().max(),
}


@pytest.mark.parametrize("rooted", [False, True])
@pytest.mark.parametrize("name", MIXING)
def test_mixing_is_found_behind_randomness_and_below_the_root(name, rooted):
    with pytest.raises(discreet.Error, match="self-check"):
        make(Between(MIXING[name], rooted))


@pytest.mark.parametrize("rooted", [False, True])
@pytest.mark.parametrize("function", [lambda h: F.dropout(h, 0.3), drop_path, lambda h: h + 0.1 * torch.randn_like(h),
                                      nn.Dropout(0.2), nn.AlphaDropout(0.2),
                                      lambda h: F.gumbel_softmax(h, 0.7)])
def test_randomness_alone_is_accepted(function, rooted):
    steps(*make(Between(function, rooted)), most=2)


# ---------------------------------------------------------------- rows

class WithoutPadding(nn.Module):
    """Its layer sees only the words that are not padding, all records' in one list."""

    def __init__(self):
        super().__init__()
        self.table, self.layer, self.head = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, ids):
        keep = ids != 0
        h = self.table(ids)
        flat = torch.tanh(self.layer(h[keep]))
        return self.head(torch.zeros_like(h).masked_scatter(keep.unsqueeze(-1), flat).sum(1))


def test_the_module_above_rows_that_differ_between_records_runs_record_by_record():
    with pytest.warns(UserWarning, match="the module runs record by record"):
        engine, *made = make(WithoutPadding(), words())
    assert engine._clipper.whole == {""}
    steps(engine, *made, most=2)
    with pytest.warns(UserWarning, match="0 runs record by record"):
        engine, *made = make(nn.Sequential(WithoutPadding(), nn.Linear(2, 2)), words())
    assert engine._clipper.whole == {"0"} and [site.name for site in engine._clipper.sites] == ["0", "1"]


def test_rows_that_differ_between_records_are_rejected_where_no_module_can_run_record_by_record():
    class RecordsLast(WithoutPadding):
        def forward(self, ids):
            return super().forward(ids).T

    with pytest.raises(discreet.Error, match="layer layer .*the rows of each record cannot be determined"):
        make(RecordsLast(), words())


def test_rows_that_divide_but_are_not_the_learned_number_are_rejected_in_a_step():
    class Dropping(nn.Module):
        """Drops positions once it is told to, as many as there are records."""

        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(6, 8), nn.Linear(8, 2)

        def forward(self, x):
            y = self.layer(torch.stack([x] * 3, 1).reshape(-1, 6))
            y = self.layer(torch.stack([x] * 2, 1).reshape(-1, 6)) if dropping else y
            return self.head(y.view(len(x), -1, 8).sum(1))

    dropping = False
    engine, module, optimizer, private = make(Dropping())
    x, y = next(iter(private))
    dropping = True
    with pytest.raises(discreet.Error, match="rows, but the batch has"):
        F.cross_entropy(module(x), y).backward()


def test_rows_may_be_as_many_as_a_dimension_of_the_input():
    class Flattened(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 2)

        def forward(self, x):
            return self.layer(x.reshape(-1, 6)).view(len(x), -1, 2).mean(1)

    def padded(records):
        xs = nn.utils.rnn.pad_sequence([x for x, _ in records], batch_first=True)
        return xs, torch.stack([y for _, y in records])

    g = torch.Generator().manual_seed(3)
    records = [(torch.randn(3 + i % 5, 6, generator=g), torch.tensor(i % 2)) for i in range(ROWS)]

    class Sum(Flattened):
        def forward(self, x):
            return self.layer(x.reshape(-1, 6)).view(len(x), -1, 2).mul(x.abs().sum(2, keepdim=True) > 0).sum(1)

    steps(*make(Sum(), DataLoader(records, batch_size=BATCH, shuffle=True, collate_fn=padded)), most=3)
    # A mean over positions that are padded to the longest record depends on who else is there.
    with pytest.raises(discreet.Error, match="self-check"):
        make(Flattened(), DataLoader(records, batch_size=BATCH, shuffle=True, collate_fn=padded))


def test_positions_before_records_are_not_taken_for_them_where_they_are_as_many():
    layer = nn.Linear(6, 2)
    clipper = Clipper(layer, {"weight": 0, "bias": 0})
    clipper.begin(4)
    with pytest.raises(discreet.Error, match="the record dimension is ambiguous"):
        layer(torch.randn(4, 4, 6)).sum().backward()
    clipper.remove()


# ---------------------------------------------------------------- memory

def frozen_parameter(m):
    m.mean = nn.Parameter(torch.zeros(8), requires_grad=False)

    def keep(h):
        m.mean.data.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        return h
    return keep


def attribute(m):
    m.mean = torch.zeros(8)

    def keep(h):
        m.mean = 0.9 * m.mean + 0.1 * h.detach().mean(0)
        return h
    return keep


def number_in_a_list(m):
    m.past = []

    def keep(h):
        m.past.append(float(h.detach().sum()))
        return h
    return keep


def closure(m):
    mean = torch.zeros(8)

    def keep(h):
        nonlocal mean
        before, mean = mean, 0.9 * mean + 0.1 * h.detach().mean(0)
        return h - before
    return keep


SEEN = {"mean": 0.0}


def global_variable(m):
    def keep(h):
        before, SEEN["mean"] = SEEN["mean"], h.detach().mean(0)
        return h - before
    return keep


def gradient_hook(m):
    m.register_buffer("seen", torch.zeros(8))

    def keep(h):
        if h.requires_grad:
            h.register_hook(lambda g: [None, m.seen.copy_(0.9 * m.seen + g.detach().sum(0))][0])
        return h
    return keep


def reseeding(m):
    def keep(h):
        noise = 0.1 * torch.randn(8)
        torch.manual_seed(int(h.detach().abs().sum() * 1e3))
        return h + noise
    return keep


def counting_records(m):
    m.register_buffer("count", torch.zeros(()))

    def keep(h):
        m.count += len(h)
        return h
    return keep


@pytest.mark.parametrize("rooted", [False, True])
@pytest.mark.parametrize("memory", [frozen_parameter, attribute, number_in_a_list, closure, global_variable, gradient_hook,
                                    reseeding])
def test_memory_is_found_wherever_it_is_held(memory, rooted):
    module = Between(None, rooted)
    module.function = memory(module)
    with pytest.raises(discreet.Error, match="self-check|different results"):
        make(module)


def test_a_count_of_records_is_memory():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 2)
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += len(x)
            return self.layer(x)

    with pytest.raises(discreet.Error, match="buffer count changes with the number of records"):
        make(Counting())


# ---------------------------------------------------------------- losses among the outputs

class WithLoss(nn.Module):
    """As Hugging Face writes it: the loss is the mean over all labels that are not -100."""

    def __init__(self, per_record=False):
        super().__init__()
        self.table, self.head, self.per_record = nn.Embedding(12, 8), nn.Linear(8, 12), per_record

    def forward(self, input_ids, labels=None):
        logits = self.head(torch.tanh(self.table(input_ids)))
        if labels is None:
            return {"logits": logits}
        if self.per_record:
            each = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").sum(1) / labels.shape[1]
            return {"loss": each.mean(), "logits": logits}
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Dictionaries(torch.utils.data.Dataset):
    def __init__(self, labels=True):
        self.ids = words().dataset.tensors[0]
        self.labels = labels

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        labels = {"labels": self.ids[i].masked_fill(self.ids[i] == 0, -100)} if self.labels else {}
        return {"input_ids": self.ids[i], **labels}


def test_a_scalar_output_that_couples_records_is_rejected_with_a_remedy():
    of = lambda labels=True: DataLoader(Dictionaries(labels), batch_size=BATCH, shuffle=True)  # noqa: E731
    with pytest.raises(discreet.Error, match="loss that couples records.*criterion=.*example_inputs="):
        make(WithLoss(), of())
    make(WithLoss(per_record=True), of())
    with pytest.raises(discreet.Error, match="loss_reduction='mean'"):
        make(WithLoss(per_record=True), of(), loss_reduction="sum")
    # The remedies: no labels; all records equally long; a criterion that is judged in its place.
    make(WithLoss(), of(labels=False))
    full = torch.randint(0, 12, (6, 7))
    make(WithLoss(), of(), example_inputs={"input_ids": full, "labels": full})


# ---------------------------------------------------------------- false alarms and raw exceptions

class KeyBias(nn.Module):
    """An attention with a key bias, whose gradient is 0 except for rounding."""

    def __init__(self, weight):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.head = nn.Linear(16, 2)
        with torch.no_grad():
            for p in self.parameters():
                p.mul_(weight)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 4
        return self.head((scores.softmax(-1) @ self.value(x)).mean(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("module, shape", [
    (lambda: KeyBias(1.0), (9, 16)), (lambda: KeyBias(3.0), (9, 16)),
    (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.Flatten(), nn.Linear(64, 2)), (3, 6, 6)),
    (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(4, 4), nn.Flatten(), nn.Linear(64, 2)), (3, 6, 6)),
])
def test_gradients_that_are_zero_but_for_rounding_are_no_alarm(module, shape, dtype):
    torch.manual_seed(2)
    records = TensorDataset(torch.randn(ROWS, *shape, dtype=dtype), torch.zeros(ROWS).long())
    steps(*make(module().to(dtype), DataLoader(records, batch_size=BATCH, shuffle=True)), most=2)


def test_a_weight_that_is_used_by_a_function_runs_record_by_record():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.head(F.linear(x, self.layer.weight))

    class Whole(Functional):
        def forward(self, x):
            return F.linear(F.linear(x, self.layer.weight), self.head.weight)

    for kind in (Functional, Whole):
        with pytest.warns(UserWarning, match="the module runs record by record"):
            engine, *made = make(kind())
        steps(engine, *made, most=2)


def test_a_module_that_cannot_be_copied_is_rejected_with_a_sentence():
    module = network()
    module.cache = module[0].weight * 2
    with pytest.raises(discreet.Error, match="cannot copy the module"):
        make(module)


def test_the_check_leaves_module_and_generators_as_they_were():
    torch.manual_seed(11)
    module = Between(lambda h: F.dropout(h, 0.5))
    before, state = weights_of(module), torch.get_rng_state()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    make(module, optimizer=optimizer)
    assert torch.equal(before, weights_of(module)) and torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in module.parameters())


def test_no_value_of_a_record_decides():
    # Records that are not numbers, or all the same, are checked as others.
    for value in (float("nan"), 0.0):
        records = TensorDataset(torch.full((ROWS, 6), value), torch.zeros(ROWS).long())
        with pytest.raises(discreet.Error, match="self-check"):
            make(Between(standardized), DataLoader(records, batch_size=BATCH, shuffle=True))
        make(Between(torch.relu), DataLoader(records, batch_size=BATCH, shuffle=True))


# ---------------------------------------------------------------- modules without a rule that draw random numbers

class Noisy(nn.Module):
    """A module without a rule, that notes what it drew."""

    def __init__(self, by_value=False):
        super().__init__()
        self.gain, self.inner, self.by_value = nn.Parameter(torch.randn(6)), nn.Linear(6, 6), by_value

    def forward(self, x):
        h = self.inner(x * self.gain)
        if self.by_value and float(x.detach().abs().sum()) < 0:  # a branch on values: record by record
            h = -h
        return F.dropout(torch.tanh(h), 0.4, training=self.training)


@pytest.mark.parametrize("by_value", [False, True])
def test_gradients_are_those_of_the_numbers_that_were_drawn(by_value):
    torch.manual_seed(4)
    module = nn.Sequential(nn.Linear(6, 6), Noisy(by_value), nn.Linear(6, 2)).double()
    x, y = torch.randn(5, 6, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])
    names = [name for name, _ in module.named_parameters()]
    clipper = Clipper(module, dict.fromkeys(names, 0), mean=False)
    clipper.learn({})

    class Sink:
        def take_norms(self, norms):
            self.norms = norms
            return torch.tensor([[1.0], [0.5], [0.25], [2.0**-3], [0.0]], dtype=torch.float64)

    clipper.sink = Sink()
    clipper.begin(5)
    seen = []
    module[1].register_forward_hook(lambda m, args, out: seen.append((args[0].detach(), out.detach())))
    F.cross_entropy(module(x), y, reduction="sum").backward()
    sums, (inputs, outputs) = dict(clipper.buffers), seen[0]
    clipper.remove()
    # The mask that was drawn, from what came out.
    with torch.no_grad():
        module[1].eval()
        mask = outputs / module[1](inputs)
    assert set(mask.round(decimals=6).unique().tolist()) <= {0.0, round(1 / 0.6, 6)} and 0 < (mask == 0).sum() < mask.numel()
    total = dict.fromkeys(names, 0)
    for i, scale in enumerate([1.0, 0.5, 0.25, 2.0**-3, 0.0]):
        h = module[1](module[0](x[i:i + 1])) * mask[i:i + 1]
        gradients = torch.autograd.grad(F.cross_entropy(module[2](h), y[i:i + 1]), list(module.parameters()))
        norm = torch.sqrt(sum(g.square().sum() for g in gradients))
        assert norm.item() == pytest.approx(clipper.sink.norms[i, 0].item(), rel=1e-9)
        for name, g in zip(names, gradients):
            total[name] = total[name] + scale * g
    for name in names:
        assert torch.allclose(sums[name].view_as(total[name]), total[name], rtol=1e-9, atol=1e-12), name


def test_a_module_that_cannot_be_run_twice_alike_is_rejected():
    own = torch.Generator().manual_seed(1)

    class OwnGenerator(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain, self.head = nn.Parameter(torch.ones(6)), nn.Linear(6, 2)

        def forward(self, x):
            return self.head(x * self.gain * (torch.rand(x.shape, generator=own) > 0.5))

    with pytest.raises(discreet.Error, match="self-check|different results"):
        engine, module, optimizer, private = make(OwnGenerator())
        steps(engine, module, optimizer, private, most=1)


def test_modules_without_a_rule_take_part_in_autocast():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain, self.head = nn.Parameter(torch.ones(6)), nn.Linear(6, 2)

        def forward(self, x):
            return self.head(x * self.gain)

    engine, module, optimizer, private = make(Own(), loss_reduction="sum")
    x, y = next(iter(private))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = module(x)
    F.cross_entropy(out.float(), y, reduction="sum").backward()
    optimizer.step()
    assert all(p.grad.dtype == torch.float32 for p in module.parameters())


def test_norms_that_are_charged_for_many_positions_are_accepted():
    # The charge for 256 nearly orthogonal positions is some 0.15% of the norm: more than float32 differs from autograd.
    module = nn.Linear(300, 2000, bias=False)
    data = DataLoader(TensorDataset(torch.randn(4, 256, 300)), batch_size=2, shuffle=True)
    PrivacyEngine(insecure_seed=1).make_private(module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
                                                data_loader=data, noise_multiplier=1.0)
