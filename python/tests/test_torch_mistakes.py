"""What people do by mistake in the loop: it works correctly, or is rejected with nothing released."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")
from test_torch_engine import BATCH, ROWS, loader, make, network, steps, weights_of  # noqa: E402
from test_torch_hazards import Indexed, backward, released  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import discreet  # noqa: E402
from discreet.torch import BatchMemoryManager, PrivacyEngine, validate  # noqa: E402
from discreet.torch.clipper import HALF_CHARGE  # noqa: E402

torch.set_num_threads(1)


def same_as_plain(module, most=3):
    other = make()
    steps(*other, most=most)
    return torch.equal(weights_of(module), weights_of(other[1]))


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_no_way_leads_twice_into_one_step(clipping):
    engine, module, optimizer, private = make(max_physical_batch_size=7, noise_multiplier=0, clipping=clipping)
    batches = iter(private)
    next(batches)  # a piece without a backward pass does not pay for another's second
    x, y = next(batches)
    backward(module, x, y)
    with pytest.raises(discreet.Error, match="one backward pass"):
        backward(module, x, y)
    del batches
    # Nor does the last piece, started again.
    for x, y in private:
        backward(module, x, y)
        if engine._batch.final:
            break
    optimizer.zero_grad()
    backward(module, x, y)
    with pytest.raises(discreet.Error, match="one backward pass"):
        backward(module, x, y)
    with pytest.raises(discreet.Error, match="without a backward pass"):
        optimizer.step()
    assert len(engine.accountant) == 0 and same_as_plain(module, most=0)


def test_the_same_graph_twice_is_refused():
    engine, module, optimizer, private = make()
    x, y = next(iter(private))
    loss = F.cross_entropy(module(x), y)
    loss.backward(retain_graph=True)
    with pytest.raises(discreet.Error, match="one backward pass"):
        loss.backward(retain_graph=True)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises((discreet.Error, RuntimeError)):
        loss.backward()  # through weights that have changed
    with pytest.raises(discreet.Error, match="without a batch"):
        optimizer.step()
    assert same_as_plain(module, most=1) and len(engine.accountant) == 1


def test_a_step_needs_every_piece_of_its_batch():
    # Whether a piece is skipped may depend on one record, and would count for all in it.
    engine, module, optimizer, private = make(max_physical_batch_size=7)
    for i, (x, y) in enumerate(private):
        if i != 1:
            backward(module, x, y)
        if engine._batch.final:
            break
        optimizer.step()
    handed = engine._batch.handed
    with pytest.raises(discreet.Error, match=rf"{handed - 7} of the batch's {handed} records|records; call"):
        optimizer.step()
    assert len(engine.accountant) == 0
    steps(engine, module, optimizer, private)  # the batch from its start
    assert len(engine.accountant) == 10


def test_steps_without_a_pass_or_a_batch_release_nothing():
    engine, module, optimizer, private = make()
    before = weights_of(module)
    with pytest.raises(discreet.Error, match="without a batch.*make_private returned"):
        optimizer.step()
    x, y = next(iter(private))
    with pytest.raises(discreet.Error, match="without a backward pass.*loss.backward"):
        optimizer.step()
    with torch.no_grad():
        loss = F.cross_entropy(module(x), y)
    with pytest.raises(RuntimeError, match="does not require grad"):
        loss.backward()
    with pytest.raises(discreet.Error, match="without a backward pass"):
        optimizer.step()
    assert torch.equal(before, weights_of(module)) and len(engine.accountant) == 0
    backward(module, x, y)
    optimizer.step()
    assert same_as_plain(module, most=1)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_was_only_looked_at_comes_again(workers):
    engine, module, optimizer, private = make(data_loader=loader(num_workers=workers))
    first, again = next(iter(private)), next(iter(private))
    assert torch.equal(first[0], again[0])
    x, y = next(iter(private))
    backward(module, x, y)  # as of a loop that was interrupted
    steps(engine, module, optimizer, private)
    assert same_as_plain(module, most=None) and len(engine.accountant) == 10


def test_two_iterations_at_a_time_do_not_give_a_batch_to_two_steps():
    engine, module, optimizer, private = make()
    one, two = iter(private), iter(private)
    for batches in (one, two):
        x, y = next(batches)
        backward(module, x, y)
        optimizer.step()
    with pytest.raises(discreet.Error, match="two iterators of the private loader"):
        next(one)
    x, y = next(two)
    backward(module, x, y)
    optimizer.step()
    assert same_as_plain(module)


def test_the_original_loader_trains_nothing():
    original = loader(batch=BATCH)
    engine, module, optimizer, private = make(data_loader=original)
    before = weights_of(module)
    for x, y in original:
        with pytest.raises(discreet.Error, match="outside the batches of the private loader.*that make_private returned"):
            backward(module, x, y)
        with pytest.raises(discreet.Error, match="without a batch.*that make_private returned"):
            optimizer.step()
    assert torch.equal(before, weights_of(module)) and all(p.grad is None for p in module.parameters())
    steps(engine, module, optimizer, private)
    assert same_as_plain(module, most=None)
    with pytest.raises(discreet.Error, match="outside the batches of the private loader"):
        backward(module, x, y)


def test_changing_what_is_accounted_is_refused():
    for key, value in (("max_grad_norm", 0.1), ("noise_multiplier", 0.1), ("expected_batch_size", 400)):
        engine, module, optimizer, private = make()
        assert (optimizer.noise_multiplier, optimizer.max_grad_norm, optimizer.expected_batch_size) == (1.0, 1.0, BATCH)
        steps(engine, module, optimizer, private, most=1)
        setattr(optimizer, key, value)
        before = weights_of(module)
        with pytest.raises(discreet.Error, match=f"{key} was set to {value}.*Start another run"):
            steps(engine, module, optimizer, private, most=1)
        assert torch.equal(before, weights_of(module)) and len(engine.accountant) == 1
        steps(engine, module, optimizer, private, most=2)
        assert same_as_plain(module)


def test_the_noise_that_was_found_can_be_read_before_the_first_step():
    module, engine = network(), PrivacyEngine()
    _, optimizer, _ = engine.make_private_with_epsilon(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1), data_loader=loader(), target_epsilon=3.0,
        target_delta=1e-5, epochs=2, max_grad_norm=1.0, declared_size=ROWS)
    least = discreet.calibrate(target_epsilon=3.0, delta=1e-5, sampling_rate=BATCH / ROWS, steps=20).noise_multiplier
    assert optimizer.noise_multiplier == pytest.approx(least, rel=1e-3)


def test_schedules_of_the_learning_rate_may_change():
    engine, module, optimizer, private = make()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    plain = copy.deepcopy(module)
    for i, (x, y) in enumerate(private):
        lr = optimizer.param_groups[0]["lr"]
        backward(module, x, y)
        before = weights_of(module)
        optimizer.step()
        assert torch.allclose(weights_of(module), before - lr * released(module), atol=1e-7)
        schedule.step()
        if i == 4:
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    assert len(engine.accountant) == 10 and not torch.equal(weights_of(plain), weights_of(module))


def test_a_module_of_another_precision_is_refused():
    for words in ("float16", "float64", "bfloat16"):
        engine, module, optimizer, private = make()
        steps(engine, module, optimizer, private, most=1)
        module.to(getattr(torch, words))
        before = weights_of(module)
        x, y = next(iter(private))
        with pytest.raises(discreet.Error, match=f"0.weight is torch.{words} now, but was torch.float32.*before make_private"):
            backward(module, x.to(before.dtype), y)
        with pytest.raises(discreet.Error, match=f"0.weight is torch.{words} now"):
            optimizer.step()
        assert torch.equal(before, weights_of(module)) and len(engine.accountant) == 1


def test_half_precision_from_the_beginning_is_summed_and_noised_in_float64():
    # Norms of half precision are charged with 2^-6 more: they are clipped to a bound that is so much smaller.
    results = []
    for dtype, bound in ((torch.float16, 1.0), (torch.float32, 1.0 / HALF_CHARGE)):
        engine, module, optimizer, private = make(network(torch.float16).to(dtype), noise_multiplier=0,
                                                  loss_reduction="sum", max_grad_norm=bound)
        x, y = next(iter(private))
        F.cross_entropy(module(x.to(dtype)).float(), y, reduction="sum").backward()
        assert all(s.dtype == torch.float64 for s in engine._clipper.buffers.values())
        optimizer.step()
        results.append(released(module).float())
    assert (results[0] - results[1]).norm() < 0.01 * results[1].norm()


def test_training_in_eval_mode_and_evaluating_with_gradients():
    class Places(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places, self.head = nn.Embedding(11, 4), nn.Embedding(5, 4), nn.Linear(20, 2)

        def forward(self, ids):
            return self.head((self.words(ids) + self.places(torch.arange(5))).flatten(1))

    torch.manual_seed(1)
    engine, module, optimizer, private = make(Places().eval(), DataLoader(
        TensorDataset(torch.randint(0, 11, (ROWS, 5)), torch.zeros(ROWS).long()), batch_size=BATCH, shuffle=True))
    steps(engine, module, optimizer, private)
    # Another number of rows, and no torch.no_grad(): a forward pass is free.
    assert module(torch.randint(0, 11, (100, 5))).shape == (100, 2)
    steps(engine, module, optimizer, private)
    assert len(engine.accountant) == 20


def test_a_loss_that_is_summed_is_the_mean_if_it_is_said():
    results = []
    for reduction in ("mean", "sum"):
        engine, module, optimizer, private = make(loss_reduction=reduction)
        for x, y in private:
            F.cross_entropy(module(x), y, reduction=reduction).backward()
            optimizer.step()
        results.append(weights_of(module))
    assert torch.allclose(*results, atol=1e-6)


@pytest.mark.parametrize("clipping", ["flat", "per_layer", "automatic"])
@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_however_a_loss_is_scaled_a_record_stays_within_its_bound(clipping, factor):
    # Sums in place of means, losses divided by the number of pieces, scalers of mixed precision.
    engine, module, optimizer, private = make(noise_multiplier=0, max_grad_norm=0.5, clipping=clipping)
    x, y = next(iter(private))
    backward(module, x, y, factor)
    optimizer.step()
    assert released(module).norm() * BATCH <= 0.5 * len(x)


def pairs(outputs, _):
    return F.cross_entropy(outputs @ outputs.T, torch.arange(len(outputs)))


def spread(outputs, targets):
    return F.cross_entropy(outputs - outputs.mean(0), targets)


def of_the_batch(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="sum") / (1 + targets.sum())


def test_a_criterion_that_couples_records_is_refused_if_it_is_given():
    for criterion in (pairs, spread, of_the_batch):
        with pytest.raises(discreet.Error, match="criterion couples records"):
            make(criterion=criterion)
    for reduction, other in (("mean", "sum"), ("sum", "mean")):
        named = nn.CrossEntropyLoss(reduction=reduction)
        plain = lambda a, b, r=reduction: F.cross_entropy(a, b, reduction=r)  # noqa: E731
        for criterion in (named, plain):
            make(criterion=criterion, loss_reduction=reduction)
            with pytest.raises(discreet.Error, match=f"use loss_reduction='{reduction}'"):
                make(criterion=criterion, loss_reduction=other)
        with pytest.raises(discreet.Error, match=f"use loss_reduction='{reduction}'"):  # of a data set that is no pairs
            make(data_loader=DataLoader(Indexed(), batch_size=BATCH, shuffle=True), criterion=named, loss_reduction=other)


def test_modules_that_mix_records_in_training_only_are_refused():
    class Mixing(nn.Module):
        def __init__(self, mix):
            super().__init__()
            self.layer, self.mix = nn.Linear(6, 2), mix

        def forward(self, x):
            y = self.layer(x)
            return self.mix(y) if self.training else y

    with pytest.raises(discreet.Error, match="layer.weight differs from the one that autograd"):
        make(Mixing(lambda y: y - y.mean(0)).eval())
    with pytest.raises(discreet.Error, match="one record alone.*batch normalisation"):
        make(Mixing(lambda y: F.batch_norm(y, None, None, training=True)))
    steps(*make(Mixing(lambda y: F.dropout(y, 0.5))), most=2)


def test_modules_that_remember_records_are_refused():
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 2)
            self.register_buffer("mean", torch.zeros(2))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            y = self.layer(x)
            self.calls += 1
            if self.remember:
                self.mean.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
            return y

    for remember in (False, True):
        module = Remembers()
        module.remember = remember
        if remember:
            with pytest.raises(discreet.Error, match="buffer mean changes with the records"):
                make(module)
        else:
            steps(*make(module), most=2)
    images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.InstanceNorm2d(2, track_running_stats=True))
    assert "running statistics" in str(validate(images)[0])
    frozen = nn.Sequential(nn.Embedding(5, 3, max_norm=0.1).requires_grad_(False), nn.Linear(3, 2))
    assert "max_norm" in str(validate(frozen)[0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compiled", ["module", "before", "after"])
def test_compiled_modules_are_clipped_as_others(compiled):
    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(11, 8), nn.Embedding(5, 8)
            self.body = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.head = nn.Linear(40, 2)

        def forward(self, ids):
            return self.head(self.body(self.words(ids) + self.places(torch.arange(5))).flatten(1)).sin()

    ids = torch.randint(0, 11, (ROWS, 5), generator=torch.Generator().manual_seed(5))
    results = []
    for way in (None, compiled):
        torch._dynamo.reset()
        torch.manual_seed(1)
        module = Text()
        if way == "module":
            module.compile(backend="aot_eager")
        made = module if way != "before" else torch.compile(module, backend="aot_eager")
        engine, made, optimizer, private = make(
            made, DataLoader(TensorDataset(ids, ids[:, 0] % 2), batch_size=BATCH, shuffle=True))
        if way == "after":
            made = torch.compile(made, backend="aot_eager")
        steps(engine, made, optimizer, private, most=4)
        results.append(weights_of(module))
    assert torch.equal(*results)


@pytest.mark.parametrize("when", ["before", "after"])
def test_data_parallel_on_the_cpu_is_the_module_itself(when):
    engine, module, optimizer, private = make(nn.DataParallel(network()) if when == "before" else network())
    steps(engine, module if when == "before" else nn.DataParallel(module), optimizer, private, most=3)
    assert same_as_plain(module)


def test_copies_averages_and_files_of_the_module_are_ordinary_modules():
    engine, module, optimizer, private = make()
    batches = iter(private)
    average = torch.optim.swa_utils.AveragedModel(module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    mean = None
    for _ in range(3):
        x, y = next(batches)
        backward(module, x, y)
        optimizer.step()
        average.update_parameters(module)
        mean = weights_of(module) if mean is None else 0.5 * mean + 0.5 * weights_of(module)
    assert torch.allclose(weights_of(average.module), mean) and same_as_plain(module)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    twins = [copy.deepcopy(module), torch.load(file, weights_only=False), average.module]
    assert torch.equal(twins[0](x), module(x)) and torch.equal(twins[1](x), module(x))
    for twin in twins:
        x, y = next(batches)
        backward(module, x, y)
        twin.zero_grad()  # is not the module's
        F.cross_entropy(twin(torch.ones(2, 6)), torch.tensor([0, 1])).backward()
        assert twin[0].weight.grad is not None and all(p.grad is not twin[0].weight.grad for p in module.parameters())
        twin.zero_grad()
        assert twin[0].weight.grad is None
        optimizer.step()
    assert same_as_plain(module, most=6)


def test_a_module_or_optimizer_is_of_one_run():
    engine, module, optimizer, private = make()
    with pytest.raises(discreet.Error, match="deepcopy"):
        make(module)
    with pytest.raises(discreet.Error, match="another private run; create a new one"):
        make(optimizer=optimizer)
    steps(*make(copy.deepcopy(module)), most=1)
    steps(engine, module, optimizer, private)
    assert same_as_plain(module, most=None)


def test_clipping_gradients_by_hand_changes_nothing_that_is_released():
    engine, module, optimizer, private = make()
    for i, (x, y) in enumerate(private):
        if i == 3:
            break
        optimizer.zero_grad()
        backward(module, x, y)
        nn.utils.clip_grad_norm_(module.parameters(), 1e-3)
        optimizer.step()
    assert same_as_plain(module)
    # What was released may be clipped: a hook of the step sees it.
    optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(module.parameters(), 1e-3) and None)
    before = weights_of(module)
    steps(engine, module, optimizer, private, most=1)
    assert (weights_of(module) - before).norm() == pytest.approx(0.1 * 1e-3, rel=1e-3)


def test_zero_grad_between_pieces_and_after_the_forward_pass_loses_nothing():
    engine, module, optimizer, private = make(max_physical_batch_size=7)
    for x, y in private:
        loss = F.cross_entropy(module(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert len(engine.accountant) == 10
    other = make()
    steps(*other)
    assert torch.allclose(weights_of(module), weights_of(other[1]), atol=1e-6)


def test_a_layer_used_twice_may_be_begun_again_after_its_forward_pass():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.head(self.layer(torch.tanh(self.layer(x))))

    results = []
    for again in (False, True):
        torch.manual_seed(1)
        engine, module, optimizer, private = make(Twice(), noise_multiplier=0)
        x, y = next(iter(private))
        backward(module, x, y)
        if again:
            loss = F.cross_entropy(module(x), y)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        results.append(released(module))
    assert torch.allclose(*results, atol=1e-8)


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
@pytest.mark.parametrize("then", ["zero_grad", "iterate", "backward"])
def test_a_backward_pass_that_failed_leaves_nothing_in_the_next(clipping, then):
    engine, module, optimizer, private = make(clipping=clipping)

    def interrupted(module, inputs, output):
        output.register_hook(lambda _: (_ for _ in ()).throw(KeyboardInterrupt()))

    x, y = next(iter(private))
    hook = module[0].register_forward_hook(interrupted)
    with pytest.raises(KeyboardInterrupt):
        backward(module, x, y)
    hook.remove()
    if then == "zero_grad":
        optimizer.zero_grad()
    elif then == "iterate":
        x, y = next(iter(private))
    else:
        with pytest.raises(discreet.Error, match="the previous backward pass failed"):
            backward(module, x, y)
    backward(module, x, y)
    optimizer.step()
    other = make(clipping=clipping)
    steps(*other, most=1)
    assert torch.equal(weights_of(module), weights_of(other[1]))


def test_parameters_that_are_not_used_get_noise_of_their_own():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.spare = nn.Linear(6, 2), nn.Linear(40, 50)

        def forward(self, x):
            return self.head(x)

    for noise in (0.0, 2.0):
        engine, module, optimizer, private = make(Unused(), noise_multiplier=noise)
        steps(engine, module, optimizer, private, most=1)
        # 2,000 numbers: within 5 standard errors of 1.6 percent but for 6e-7.
        assert module.spare.weight.grad.std().item() * BATCH == pytest.approx(noise, rel=0.08)


def test_optimizers_that_cannot_be_private_are_refused():
    module = network()
    for optimizer, words in (
            (torch.optim.LBFGS(module.parameters()), "LBFGS needs a closure"),
            (torch.optim.SparseAdam(module.parameters()), "SparseAdam"),
            ([torch.optim.SGD(module.parameters(), lr=1.0), torch.optim.Adam(module[0].parameters())], "0.weight is in two")):
        with pytest.raises(discreet.Error, match=words):
            make(module, optimizer=optimizer)
    engine, module, optimizer, private = make()
    stray = nn.Linear(2, 2)
    optimizer.add_param_group({"params": stray.parameters()})
    before = [p.clone() for p in (*module.parameters(), *stray.parameters())]
    x, y = next(iter(private))
    F.cross_entropy(stray(module(x)), y).backward()
    with pytest.raises(discreet.Error, match="outside the module after make_private"):
        optimizer.step()
    assert all(map(torch.equal, before, (*module.parameters(), *stray.parameters()))) and len(engine.accountant) == 0


def test_there_is_no_last_batch_of_fewer_records():
    # 405 records in batches of 40: eleven steps of the same rate; drop_last drops nobody.
    for drop_last in (False, True):
        engine, module, optimizer, private = make(data_loader=loader(405, drop_last=drop_last))
        assert len(private) == engine.steps_per_epoch == 11
        assert engine._session.sampling()["sampling_rate"] == 40 / 405
        steps(engine, module, optimizer, private)
        assert len(engine.accountant) == 11


def test_gradients_of_inputs_are_no_backward_pass_beside_another():
    engine, module, optimizer, private = make()
    x, y = next(iter(private))
    x.requires_grad_()
    (g,) = torch.autograd.grad(F.cross_entropy(module(x), y), x)  # as adversarial training does
    with pytest.raises(discreet.Error, match="one backward pass"):
        backward(module, x.detach() + 0.1 * g.sign(), y)
    optimizer.zero_grad()
    backward(module, x.detach(), y)
    optimizer.step()
    assert same_as_plain(module, most=1)


def test_opacus_memory_manager_is_the_argument():
    results = []
    for managed in (False, True):
        engine, module, optimizer, private = make(**({} if managed else {"max_physical_batch_size": 7}))
        if managed:
            with BatchMemoryManager(data_loader=private, max_physical_batch_size=7, optimizer=optimizer) as pieces:
                assert all(len(x) <= 7 for x, _ in [next(iter(pieces))])
                steps(engine, module, optimizer, pieces)
            assert max(len(x) for x, _ in [next(iter(private))]) > 7
        else:
            steps(engine, module, optimizer, private)
        results.append(weights_of(module))
        assert len(engine.accountant) == 10
    assert torch.equal(*results)
    with pytest.raises(discreet.Error, match="that make_private returned"):
        BatchMemoryManager(data_loader=loader(), max_physical_batch_size=7)


def test_a_call_that_is_refused_changes_neither_module_nor_optimizer():
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    kept = [(thing, dict(vars(thing))) for thing in (optimizer, *module.modules())]
    for options, words in (
            ({"data_loader": loader(shuffle=False)}, "shuffle=True"), ({"clipping": "ghost"}, "clipping is"),
            ({"noise_multiplier": None, "target_epsilon": 1e-7, "target_delta": 1e-12, "epochs": 10000},
             "raise target_epsilon"),
            ({"target_epsilon": 1e6}, "smaller target_epsilon"), ({"max_grad_norm": -1.0}, "norm"),
            ({"example_inputs": (torch.randn(3, 5),)}, "could not call the module"),
            ({"example_inputs": (torch.randn(2, 6),)}, "at least 3"), ({"criterion": pairs}, "couples"),
            ({"settings": {"noise.family": "nothing"}}, "noise"), ({"declared_size": 5}, "declared_size is 5")):
        with pytest.raises(discreet.Error, match=words):
            make(module, optimizer=optimizer, **options)
    assert all(vars(thing) == was for thing, was in kept)
    assert not any(p._backward_hooks for p in module.parameters())
    engine, module, optimizer, private = make(module, optimizer=optimizer)
    steps(engine, module, optimizer, private, most=3)
    assert same_as_plain(module)
