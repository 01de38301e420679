"""PrivacyEngine: what is released, drawn and accounted, and what is rejected."""

import copy
import math
import warnings

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import discreet  # noqa: E402
from discreet.torch import PrivacyEngine  # noqa: E402

torch.set_num_threads(1)
ROWS, BATCH = 400, 40


def data(rows=ROWS, width=6):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(rows, width, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long())


def loader(rows=ROWS, batch=BATCH, **options):
    return DataLoader(data(rows), batch_size=batch, **{"shuffle": True, **options})


def network(dtype=torch.float32):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 2)).to(dtype)


def make(module=None, data_loader=None, optimizer=None, engine=None, **options):
    module = network() if module is None else module
    engine = engine or PrivacyEngine(insecure_seed=3)
    optimizer = optimizer or torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
    options = {"noise_multiplier": 1.0, "max_grad_norm": 1.0} | options
    module, optimizer, private = engine.make_private(
        module=module, optimizer=optimizer, data_loader=data_loader or loader(), **options)
    return engine, module, optimizer, private


def steps(engine, module, optimizer, private, epochs=1, most=None):
    for _ in range(epochs):
        for count, (x, y) in enumerate(private):
            if count == most:
                return
            optimizer.zero_grad()
            F.cross_entropy(module(x), y).backward()
            optimizer.step()


def weights_of(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


# ---------------------------------------------------------------- what is released

def test_the_release_is_the_clipped_average_over_the_declared_batch():
    engine, module, optimizer, private = make(network(torch.float64), DataLoader(
        TensorDataset(data().tensors[0].double(), data().tensors[1]), batch_size=BATCH, shuffle=True),
        noise_multiplier=0, max_grad_norm=1.2)
    x, y = next(iter(private))
    optimizer.zero_grad()
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    own = copy.deepcopy(module)

    def loss(parameters, x, y):
        return F.cross_entropy(torch.func.functional_call(own, parameters, (x.unsqueeze(0),)), y.unsqueeze(0))

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    norms = torch.sqrt(sum(g.flatten(1).square().sum(1) for g in gradients.values()))
    scales = (1.2 / norms).clamp(max=1)
    assert (scales < 1).any() and (scales == 1).any() and len(x) != BATCH
    F.cross_entropy(module(x), y).backward()
    assert all(p.grad is None for p in module.parameters()), "nothing is in p.grad before it is released"
    optimizer.step()
    for name, p in module.named_parameters():
        exact = torch.einsum("n,n...->...", scales, gradients[name]) / BATCH
        assert torch.allclose(p.grad, exact, rtol=1e-7, atol=1e-9)
    assert engine.not_private and math.isinf(engine.get_epsilon(1e-5))


def test_the_noise_has_the_standard_deviation_that_is_accounted():
    module = nn.Linear(100, 200)
    engine, module, optimizer, private = make(
        module, DataLoader(TensorDataset(torch.randn(ROWS, 100), torch.zeros(ROWS)), batch_size=BATCH, shuffle=True),
        noise_multiplier=1.5, max_grad_norm=2.0, engine=PrivacyEngine())
    x, _ = next(iter(private))
    (0 * module(x)).mean().backward()
    optimizer.step()
    noise = module.weight.grad * BATCH
    # 20,000 numbers: the sample's deviation is within 5 standard errors (0.5 percent each) but for 6e-7.
    assert abs(noise.std().item() / 3.0 - 1) < 0.025
    assert not engine.not_private


def test_epsilon_is_that_of_the_core_for_the_epochs_that_were_begun():
    engine, module, optimizer, private = make(engine=PrivacyEngine(), declared_size=ROWS)
    steps(engine, module, optimizer, private, epochs=2)
    spent = engine.get_epsilon(1e-5)
    exact = discreet.account(sampling_rate=BATCH / ROWS, noise_multiplier=1.0, steps=20, delta=1e-5).epsilon
    assert exact.lower <= spent <= exact.upper * 1.001 and spent.lower <= spent.upper
    assert spent.adjacency == "add_remove" and len(engine.accountant) == 20
    assert engine.get_epsilon(1e-6) > spent
    # An epoch is reserved whole before its first step.
    steps(engine, module, optimizer, private, most=1)
    whole = discreet.account(sampling_rate=BATCH / ROWS, noise_multiplier=1.0, steps=30, delta=1e-5).epsilon
    assert engine.get_epsilon(1e-5) >= whole.lower


@pytest.mark.parametrize("sampling", ["poisson", "balls_and_bins"])
def test_a_target_epsilon_is_met_and_never_passed(sampling):
    engine = PrivacyEngine()
    module = network()
    optimizer = torch.optim.Adam(module.parameters())
    module, optimizer, private = engine.make_private_with_epsilon(
        module=module, optimizer=optimizer, data_loader=loader(), target_epsilon=3.0, target_delta=1e-5, epochs=2,
        max_grad_norm=1.0, sampling=sampling, declared_size=ROWS)
    steps(engine, module, optimizer, private, epochs=2)
    assert 2.9 < engine.get_epsilon(1e-5) <= 3.0
    before = weights_of(module)
    with pytest.raises(discreet.Error):
        steps(engine, module, optimizer, private, most=1)
    assert torch.equal(before, weights_of(module)), "nothing was released"


def test_pieces_of_a_batch_give_the_step_of_the_whole_batch():
    results = []
    for options in ({}, {"max_physical_batch_size": 7}):
        engine, module, optimizer, private = make(**options)
        steps(engine, module, optimizer, private)
        results.append((weights_of(module), len(engine.accountant)))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-6)
    assert results[0][1] == results[1][1] == ROWS // BATCH


def test_gradient_accumulation_is_one_step_of_the_larger_batch():
    engine, module, optimizer, private = make(data_loader=loader(batch=BATCH // 2), gradient_accumulation_steps=2)
    for i, (x, y) in enumerate(private):
        F.cross_entropy(module(x), y).backward()
        if i % 2 == 1:
            optimizer.step()
            optimizer.zero_grad()
    other = make()
    steps(*other)
    assert torch.allclose(weights_of(module), weights_of(other[1]), atol=1e-6)
    assert len(engine.accountant) == ROWS // BATCH


@pytest.mark.parametrize("clipping", ["flat", "per_layer", "per_group", "automatic", "adaptive"])
def test_every_way_of_clipping_learns(clipping):
    options = {"groups": {"0.weight": "first", "0.bias": "first"}} if clipping == "per_group" else {}
    engine, module, optimizer, private = make(clipping=clipping, noise_multiplier=0.5, target_epsilon=25, target_delta=1e-3,
                                              epochs=6, **options)
    optimizer.param_groups[0]["lr"] = 2.0
    steps(engine, module, optimizer, private, epochs=6)
    x, y = data().tensors
    assert (module(x).argmax(1) == y).float().mean() > 0.8


def test_adaptive_clipping_pays_for_its_counts():
    spent = {}
    for clipping in ("flat", "adaptive"):
        engine, *rest = make(clipping=clipping, engine=PrivacyEngine(), settings={"clipping.adaptive.noise": 2.0})
        steps(engine, *rest)
        spent[clipping] = engine.get_epsilon(1e-5)
    # σ_eff⁻² = σ⁻² + 2/(4σ_b²)
    sigma = (1 + 2 / (4 * 2.0**2)) ** -0.5
    exact = discreet.account(sampling_rate=0.1, noise_multiplier=sigma, steps=10, delta=1e-5, adjacency="zero_out").epsilon
    assert spent["flat"] < spent["adaptive"] and exact.lower <= spent["adaptive"] <= exact.upper * 1.001


def test_automatic_clipping_bounds_every_record():
    engine, module, optimizer, private = make(clipping="automatic", noise_multiplier=0, max_grad_norm=0.5)
    x, y = next(iter(private))
    F.cross_entropy(module(x), y).backward()
    optimizer.step()
    total = torch.sqrt(sum(p.grad.square().sum() for p in module.parameters()))
    assert total * BATCH <= 0.5 * len(x)


# ---------------------------------------------------------------- batches

@pytest.mark.parametrize("sampling", ["poisson", "balls_and_bins"])
def test_records_come_at_the_rate_that_is_accounted(sampling):
    counts = torch.zeros(ROWS)
    dataset = TensorDataset(data().tensors[0], torch.arange(ROWS))
    engine, module, optimizer, private = make(
        data_loader=DataLoader(dataset, batch_size=BATCH, shuffle=True), sampling=sampling,
        epochs=10)
    for _ in range(10):
        for x, index in private:
            counts[index] += 1
            module(x).sum(1).mean().backward()
            optimizer.step()
    assert len(engine.accountant) == 100
    if sampling == "balls_and_bins":
        assert (counts == 10).all()
    else:
        # 40,000 coins of probability 1/10: 4,000 within 6 standard deviations of 60.
        assert abs(counts.sum() - 4000) < 360 and counts.max() > 10


def test_rates_and_averages_follow_the_declared_size_only():
    # Of 93 and 92 records: Opacus' int(1 / (1 / 93)) is 92.
    plans = []
    for rows in (92, 93):
        engine, *_ = make(data_loader=loader(rows=rows, batch=1), declared_size=93)
        plans.append(engine._session.sampling())
    assert plans[0] == plans[1] and plans[0]["sampling_rate"] == 1 / 93 and plans[0]["steps_per_epoch"] == 93
    engine, *_ = make()
    assert engine.get_epsilon().adjacency == "zero_out", "the number of records is public if none is declared"
    with pytest.raises(discreet.Error, match="declared_size is 90"):
        make(data_loader=loader(rows=93), declared_size=90)


def test_empty_batches_step_with_noise():
    engine, module, optimizer, private = make(data_loader=loader(rows=20, batch=1), self_check=True)
    sizes = []
    for x, y in private:
        sizes.append(len(x))
        before = weights_of(module)
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
        assert not torch.equal(before, weights_of(module))
    # A batch without records is handed out with one that enters no sum (test_torch_records.py).
    assert min(sizes) == 1 and len(engine.accountant) == len(sizes) == 20


def test_loaders_that_cannot_be_accounted_are_refused():
    dataset = data()
    cases = {
        "WeightedRandomSampler": DataLoader(dataset, 8, sampler=torch.utils.data.WeightedRandomSampler([1.0] * ROWS, ROWS)),
        "order": DataLoader(dataset, 8),
        "SubsetRandomSampler": DataLoader(dataset, 8, sampler=torch.utils.data.SubsetRandomSampler(range(5))),
        "batch sampler": DataLoader(dataset, batch_sampler=torch.utils.data.BatchSampler(range(ROWS), 8, False)),
        "replacement": DataLoader(dataset, 8, sampler=torch.utils.data.RandomSampler(dataset, replacement=True)),
    }
    for words, bad in cases.items():
        with pytest.raises(discreet.Error, match=words):
            make(data_loader=bad)
    with pytest.raises(discreet.Error, match="balls_and_bins"):
        make(poisson_sampling=False)
    with pytest.raises(discreet.Error, match="a list"):
        make(data_loader=[1, 2])


def test_workers_draw_the_same_batches():
    results = []
    for workers in (0, 2):
        engine, module, optimizer, private = make(data_loader=loader(num_workers=workers))
        steps(engine, module, optimizer, private)
        results.append(weights_of(module))
    assert torch.equal(*results)


# ---------------------------------------------------------------- one record, one contribution

def test_a_record_enters_one_backward_pass_of_a_step():
    engine, module, optimizer, private = make()
    x, y = next(iter(private))
    F.cross_entropy(module(x), y).backward()
    with pytest.raises(discreet.Error, match="one backward pass"):
        F.cross_entropy(module(x), y).backward()
    with pytest.raises(discreet.Error, match="without a backward pass"):
        optimizer.step()
    # Two losses of the same records are one gradient if they are added first.
    optimizer.zero_grad()
    (F.cross_entropy(module(x), y) + F.cross_entropy(module(x), 1 - y)).backward()
    optimizer.step()
    with pytest.raises(discreet.Error, match="without a batch"):
        optimizer.step()


def test_records_from_elsewhere_and_skipped_batches_are_refused():
    engine, module, optimizer, private = make()
    batches = iter(private)
    x, y = next(batches)
    with pytest.raises(discreet.Error, match="rows, but the batch has"):
        F.cross_entropy(module(torch.cat([x, x])), torch.cat([y, y])).backward()
    with pytest.raises(discreet.Error, match="step was not taken"):
        next(batches)


def test_zero_grad_drops_what_was_not_released():
    engine, module, optimizer, private = make(noise_multiplier=0)
    x, y = next(iter(private))
    (100 * F.cross_entropy(module(x), 1 - y)).backward()
    optimizer.zero_grad(set_to_none=False)
    F.cross_entropy(module(x), y).backward()
    optimizer.step()
    first = [p.grad.clone() for p in module.parameters()]
    other = make(noise_multiplier=0)
    x, y = next(iter(other[3]))
    F.cross_entropy(other[1](x), y).backward()
    other[2].step()
    assert all(torch.equal(a, p.grad) for a, p in zip(first, other[1].parameters()))


def test_several_optimizers_schedulers_and_groups_share_one_release():
    module = network()
    first = torch.optim.SGD([{"params": module[0].parameters(), "lr": 0.1}], lr=0.5)
    second = torch.optim.Adam(module[2].parameters())
    engine = PrivacyEngine(insecure_seed=3)
    module, both, private = engine.make_private(module=module, optimizer=[first, second], data_loader=loader(),
                                                noise_multiplier=1.0, max_grad_norm=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule = torch.optim.lr_scheduler.StepLR(first, 1, 0.5)
        for x, y in private:
            module.zero_grad()
            F.cross_entropy(module(x), y).backward()
            first.step()
            second.step()
            schedule.step()
    assert len(engine.accountant) == 10 and first.param_groups[0]["lr"] == 0.1 * 0.5**10
    with pytest.raises(discreet.Error, match="closure"):
        first.step(lambda: None)
    stray = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(discreet.Error, match="outside the module"):
        make(optimizer=stray)


# ---------------------------------------------------------------- bad input

def poisoned(value):
    x, y = data().tensors
    x = x.clone()
    x[:, 1] = 0
    x[::10, 1] = value
    return DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 3e38])
def test_records_that_are_not_finite_are_left_out_and_counted(value):
    seen = []
    engine, module, optimizer, private = make(data_loader=poisoned(value), engine=PrivacyEngine(
        insecure_seed=3, callbacks=[seen.append]), noise_multiplier=0)
    for x, y in private:
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
        bad = int((~(x.abs() < 1e30).all(1)).sum())
        assert seen[-1]["confidential"]["zeroed_records"] == bad
        assert all(torch.isfinite(p).all() for p in module.parameters())
    assert sum(one["confidential"]["zeroed_records"] for one in seen) > 0
    assert seen[-1]["step"] == 10 and "epsilon" in seen[-1]


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_abort_ends_at_such_a_record_and_releases_nothing(clipping):
    engine, module, optimizer, private = make(data_loader=poisoned(float("inf")), nonfinite="abort", clipping=clipping)
    before, t = weights_of(module), len(engine.accountant)
    with pytest.raises(discreet.Error) as error:
        steps(engine, module, optimizer, private)
    assert error.value.code == "INVALID_GRADIENT"
    assert torch.equal(before, weights_of(module)) and len(engine.accountant) == t
    assert all(p.grad is None for p in module.parameters())


def test_a_loss_that_is_not_a_number_releases_noise_only():
    engine, module, optimizer, private = make(noise_multiplier=0)
    x, y = next(iter(private))
    (F.cross_entropy(module(x), y) * float("nan")).backward()
    before = weights_of(module)
    optimizer.step()
    assert torch.equal(before, weights_of(module))


def test_wrong_arguments_are_named():
    for options, words in (({"clipping": "ghost"}, "clipping is 'ghost'"), ({"sampling": "epoch"}, "sampling is"),
                           ({"noise": 1}, "no argument noise"), ({"noise_multiplier": None}, "noise_multiplier"),
                           ({"batch_first": False}, "batch_first"), ({"noise_multiplier": -1.0}, "noise_multiplier"),
                           ({"max_grad_norm": 0.0}, "norm"),
                           ({"noise_generator": torch.Generator()}, "insecure_seed"),
                           ({"loss_reduction": "none"}, "loss_reduction")):
        with pytest.raises(discreet.Error, match=words):
            make(**options)
    engine = make()[0]
    with pytest.raises(discreet.Error, match="already"):
        make(engine=engine)


def test_names_of_other_libraries_are_taken():
    module = network()
    engine = PrivacyEngine(accountant="prv", insecure_seed=3)
    criterion = nn.CrossEntropyLoss()
    module, optimizer, same, private = engine.make_private(  # as Opacus returns it in this mode
        model=module, optimizers=torch.optim.SGD(module.parameters(), lr=0.1), train_loader=loader(), sigma=1.0,
        l2_norm_clip=1.0, grad_sample_mode="ghost", criterion=criterion, poisson_sampling=True)
    assert same is criterion
    steps(engine, module, optimizer, private)
    other = make()
    steps(*other)
    assert torch.equal(weights_of(module), weights_of(other[1]))
