"""What other libraries got wrong without saying so, bad input, and what people do by mistake: right, or refused with nothing
released."""

import copy
import io
import math
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402

import discreet  # noqa: E402
from discreet.torch import PrivacyEngine, validate  # noqa: E402
from test_torch_engine import BATCH, ROWS, data, loader, make, network, steps, weights_of  # noqa: E402
from test_torch_run import lines  # noqa: E402

torch.set_num_threads(1)


class Indexed(Dataset):
    """The records, each with its number."""

    def __init__(self, rows=ROWS):
        self.x, self.y = (t[:rows] for t in data().tensors)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i], i


def backward(module, x, y, factor=1.0):
    (factor * F.cross_entropy(module(x), y)).backward()


def gradients_of(module, x, y):
    """Of every record alone, by autograd: [records, parameters]."""
    own, out = copy.deepcopy(module), []
    for i in range(len(x)):
        loss = F.cross_entropy(own(x[i:i + 1]), y[i:i + 1])
        out.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(own.parameters()))]))
    return torch.stack(out)


def released(module):
    return torch.cat([p.grad.flatten() for p in module.parameters()])


# ---------------------------------------------------------------- what peers got wrong


@pytest.mark.parametrize("clipping", ["flat", "automatic", "per_layer"])
def test_a_record_moves_the_release_by_its_bound_and_nothing_else(clipping):
    # Opacus#819: denominators and rates that follow the number of records tell neighbours apart.
    found = 0
    for seed in range(6):
        seen = {}
        for rows in (ROWS, ROWS - 1):  # the last record is absent
            engine, module, optimizer, private = make(
                network(torch.float64), DataLoader(Indexed(rows), batch_size=150, shuffle=True), clipping=clipping,
                engine=PrivacyEngine(insecure_seed=seed), declared_size=ROWS, max_grad_norm=0.5, noise_multiplier=1.0)
            for x, y, numbers in private:
                backward(module, x.double(), y)
                optimizer.step()
                break
            seen[rows] = set(numbers.tolist()), released(module)
        (with_it, a), (without, b) = seen.values()
        assert with_it - {ROWS - 1} == without, "the coins of the others are the same"
        away = (a - b).norm() * 150
        if ROWS - 1 in with_it:
            found += 1
            # Noise of so many coordinates would be far above the bound if it were not the same.
            assert 0 < away <= 0.5 * (1 + 1e-6)
        else:
            assert away == 0
    assert found > 0


def test_adaptive_bounds_follow_counts_over_the_declared_batch():
    # Opacus divides its counts by the size of the batch that came.
    engine, module, optimizer, private = make(
        data_loader=loader(ROWS // 2), declared_size=ROWS, clipping="adaptive", settings={"clipping.adaptive.noise": 0.5})
    x, y = next(iter(private))
    norms = gradients_of(module, x, y).norm(dim=1)
    median, mad = 2 / 3, 1 / 3  # of which the first bound is the sum
    below = ((norms <= median).float() - 0.5).sum().item()
    within = (((norms - median).abs() <= mad).float() - 0.5).sum().item()
    bound = lambda batch: median * math.exp(-0.2 * below / batch) + mad * math.exp(-0.2 * within / batch)  # noqa: E731
    assert optimizer.max_grad_norm == pytest.approx(1.0)
    backward(module, x, y)
    optimizer.step()
    # The noise of a count moves the bound by 0.2 * 0.5 / 40 of itself.
    assert abs(bound(BATCH) - bound(len(x))) > 0.02
    assert optimizer.max_grad_norm == pytest.approx(bound(BATCH), abs=0.01)


def test_noise_and_counts_are_of_the_systems_generator_whatever_the_seed_of_torch():
    # Opacus draws the noise of its counts from the default generator, in secure mode too.
    bounds, noises = [], []
    for _ in range(2):
        torch.manual_seed(0)
        # All records in every batch, of gradient 0: what differs is noise.
        engine, module, optimizer, private = make(
            data_loader=loader(batch=ROWS), clipping="adaptive", engine=PrivacyEngine(), noise_multiplier=5.0,
            settings={"clipping.adaptive.noise": 5.0})
        x, _ = next(iter(private))
        (0 * module(x)).mean().backward()
        optimizer.step()
        bounds.append(optimizer.max_grad_norm)
        noises.append(released(module))
    assert bounds[0] != bounds[1] and not (noises[0] == noises[1]).any()


def test_noise_is_fresh_in_every_step_and_tensor():
    module = nn.Sequential(nn.Linear(100, 100, bias=False), nn.Linear(100, 100, bias=False))
    x = torch.randn(ROWS, 100)
    engine, module, optimizer, private = make(module, DataLoader(TensorDataset(x), batch_size=BATCH, shuffle=True))
    noises = []
    for (x,) in private:
        (0 * module(x)).mean().backward()
        optimizer.step()
        noises += [p.grad.flatten() for p in module.parameters()]
    noises = torch.stack(noises) * BATCH
    correlation = noises @ noises.T / noises.shape[1]
    # 190 pairs of 10,000 numbers: beyond 6 standard errors of 0.01 with probability 4e-7.
    assert (correlation - torch.eye(20)).abs().max() < 0.06


def test_poisson_batches_vary_as_coins_do():
    # Fixed batches with Poisson accounting: the rate is right, and the size never varies.
    sizes, together = [], 0
    engine, module, optimizer, private = make(data_loader=DataLoader(Indexed(), batch_size=BATCH, shuffle=True), epochs=10)
    for _ in range(10):
        for x, y, numbers in private:
            sizes.append(float(len(x)))
            assert len(set(numbers.tolist())) == len(x)
            backward(module, x, y)
            optimizer.step()
    # The variance of Binomial(400, 0.1) is 36; that of 100 sizes is within 15 and 70 but for 1e-5.
    assert 15 < torch.tensor(sizes).var() < 70


def test_accumulated_batches_are_accounted_as_the_larger_batch():
    spent = []
    for options in ({"data_loader": loader(batch=BATCH // 4), "gradient_accumulation_steps": 4}, {},
                    {"max_physical_batch_size": 3}):
        engine, module, optimizer, private = make(engine=PrivacyEngine(), **options)
        assert engine._session.sampling()["sampling_rate"] == BATCH / ROWS
        steps(engine, module, optimizer, private)
        spent.append((engine.get_epsilon(1e-5), len(engine.accountant)))
    assert spent[0] == spent[1] == spent[2]


class Adapter(nn.Module):
    """As PEFT writes LoRA: the layer in a wrapper, matrices in dictionaries."""

    def __init__(self, base):
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_dropout = nn.ModuleDict({"default": nn.Identity()})
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, base.out_features, bias=False)})
        nn.init.zeros_(self.lora_B["default"].weight)

    def forward(self, x, *args, **kwargs):
        y = self.base_layer(x, *args, **kwargs)
        for key in self.lora_A:
            y = y + 2.0 * self.lora_B[key](self.lora_A[key](self.lora_dropout[key](x)))
        return y


def test_adapters_in_wrappers_are_trained_and_the_rest_is_not():
    # Opacus#820: a loss and an epsilon as ever, and a model of no use.
    module = network()
    module[0], module[2] = Adapter(module[0]), Adapter(module[2])
    module.double()
    frozen = {name: p.clone() for name, p in module.named_parameters() if not p.requires_grad}
    x, y = data().tensors
    engine, module, optimizer, private = make(module, DataLoader(TensorDataset(x.double(), y), batch_size=BATCH, shuffle=True),
                                              noise_multiplier=0, max_grad_norm=0.3, epochs=8)
    optimizer.param_groups[0]["lr"] = 3.0
    with torch.no_grad():
        before = F.cross_entropy(module(x.double()), y)
    steps(engine, module, optimizer, private, epochs=8)
    with torch.no_grad():
        assert F.cross_entropy(module(x.double()), y) < 0.5 * before
    for name, p in module.named_parameters():
        assert torch.equal(p, frozen[name]) if name in frozen else p.grad is not None


def test_lists_of_parameters_are_clipped_with_the_module_that_uses_them():
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.scales = nn.ParameterList([nn.Parameter(torch.randn(6)) for _ in range(2)])
            self.named = nn.ParameterDict({"shift": nn.Parameter(torch.randn(6))})
            self.head = nn.Linear(6, 2)

        def forward(self, x):
            return self.head(torch.tanh(x * self.scales[0] + self.named["shift"]) * self.scales[1])

    torch.manual_seed(1)
    engine, module, optimizer, private = make(Listed().double(), DataLoader(
        TensorDataset(data().tensors[0].double(), data().tensors[1]), batch_size=BATCH, shuffle=True), noise_multiplier=0)
    x, y = next(iter(private))
    gradients = gradients_of(module, x, y)
    scales = (1 / gradients.norm(dim=1)).clamp(max=1)
    assert (scales < 1).any() and (scales == 1).any()
    backward(module, x, y)
    optimizer.step()
    assert torch.allclose(released(module), scales @ gradients / BATCH, rtol=1e-6, atol=1e-9)


RANK = """
import sys, torch
sys.path.insert(0, {here!r})
import discreet
from test_torch_engine import PrivacyEngine, make, network, steps, weights_of
rank, size, first = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "first"
group = lambda: torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[4], rank=rank, world_size=size)
if first:
    group()
module = network()
before = weights_of(module)
try:
    made = make(module, engine=PrivacyEngine())
    if not first:
        group()
    steps(*made, most=1)
    print("stepped", len(made[0].accountant))
except discreet.Error as error:
    assert torch.equal(before, weights_of(module)) and all(p.grad is None for p in module.parameters())
    print("refused", error)
if size > 1:
    torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("size, when", [(2, "first"), (2, "later"), (1, "first")])
def test_several_ranks_are_refused_and_one_is_not(tmp_path, size, when):
    program = RANK.format(here=os.path.dirname(__file__))
    ranks = [subprocess.Popen([sys.executable, "-c", program, str(rank), str(size), when, str(tmp_path / "group")],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(size)]
    for rank in ranks:
        out, err = rank.communicate(timeout=120)
        assert rank.returncode == 0, err
        if size == 1:
            assert out == "stepped 1\n"
        else:
            assert out.startswith("refused") and "2 ranks" in out and "Train in one process" in out


def test_wrappers_for_several_processes_are_refused(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:
        with pytest.raises(discreet.Error, match="module.module"):
            make(nn.parallel.DistributedDataParallel(network()))
    finally:
        torch.distributed.destroy_process_group()


def test_noise_far_too_small_is_accounted_in_time_and_refused():
    # Accountants of peers hang, or say that they cannot, where sigma is tiny.
    engine, module, optimizer, private = make(noise_multiplier=0.02, engine=PrivacyEngine())
    before = weights_of(module)
    with pytest.raises(discreet.Error, match="larger target_epsilon or more noise"):
        steps(engine, module, optimizer, private)
    assert torch.equal(before, weights_of(module)) and len(engine.accountant) == 0
    with pytest.raises(discreet.Error, match="smaller target_epsilon"):
        make(target_epsilon=1e6)


def test_an_adapted_bound_is_in_the_checkpoint(tmp_path):
    # Opacus forgets it.
    def begin(resume=False):
        torch.manual_seed(1)
        return make(engine=PrivacyEngine(directory=tmp_path / "run", resume=resume, insecure_seed=3), clipping="adaptive",
                    epochs=4)

    engine, module, optimizer, private = begin()
    steps(engine, module, optimizer, private)
    engine.save_checkpoint()
    bound = optimizer.max_grad_norm
    assert bound != 1.0
    engine.close()
    engine, module, optimizer, private = begin(resume=True)
    assert optimizer.max_grad_norm == bound
    engine.close()


# ---------------------------------------------------------------- bad input: a clear error, and all is as it was


class Run:
    """Three steps of a run in a directory, saved, and what it was then."""

    def __init__(self, path, poison=None, **options):
        self.path, self.options = path, options
        torch.manual_seed(1)
        self.x, self.y = (t.clone() for t in data().tensors)
        if poison is not None:
            self.x[:, 1] = 0
            self.x[1::2, 1] = poison
        self.begin()
        self.batches = iter(self.private)
        for _ in range(3):
            self.step(clean=True)
        self.engine.save_checkpoint()
        self.before = self.state()

    def module(self):
        return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 2))

    def begin(self, resume=False, rows=ROWS, module=None):
        module = module or self.module()
        self.engine, self.net, self.optimizer, self.private = make(
            module, DataLoader(TensorDataset(self.x[:rows], self.y[:rows]), batch_size=BATCH, shuffle=True),
            torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=0.05),
            PrivacyEngine(directory=self.path, resume=resume), epochs=5, **self.options)

    def step(self, clean=False, factor=1.0):
        x, y = next(self.batches)
        self.optimizer.zero_grad()
        backward(self.net, torch.where(x.abs() < 100, x, 0) if clean else x, y, factor)
        self.optimizer.step()

    def state(self):
        optimizer = [t.clone() for s in self.optimizer.state_dict()["state"].values() for t in s.values()]
        return ([p.detach().clone() for p in self.net.parameters()], optimizer, len(self.engine.accountant),
                self.engine.get_epsilon(), lines(self.path, "iter"), (self.path / "checkpoint.cbor").read_bytes())

    def check_nothing_happened(self, raw=True):
        """raw: also that no gradient without noise is left anywhere."""
        for was, now in zip(self.before[:2], self.state()[:2]):
            assert len(was) == len(now) and all(map(torch.equal, was, now))
        assert self.before[2:] == self.state()[2:]
        self.check_goes_on()

    def check_goes_on(self):
        self.engine.close()
        self.begin(resume=True)
        assert all(map(torch.equal, self.before[0], self.net.parameters()))
        assert len(self.engine.accountant) == 3 and self.engine.get_epsilon() == self.before[3]
        self.batches = iter(self.private)
        self.step(clean=True)
        assert len(lines(self.path, "iter")) == 4
        self.engine.close()


@pytest.mark.parametrize("clipping", ["flat", "per_layer", "automatic"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_abort_at_an_infinite_gradient_leaves_all_as_it_was(tmp_path, clipping, value):
    run = Run(tmp_path / "run", poison=value, nonfinite="abort", clipping=clipping)
    with pytest.raises(discreet.Error, match="not finite.*nonfinite: zero leaves such records out") as error:
        run.step()
    assert error.value.code == "INVALID_GRADIENT"
    assert all(p.grad is None for p in run.net.parameters()) and lines(run.path, "failure")
    run.check_nothing_happened()


@pytest.mark.parametrize("clipping", ["flat", "per_layer", "automatic"])
def test_zero_leaves_infinite_gradients_out_and_counts_them(clipping):
    seen = []
    x, y = data().tensors
    x = torch.cat([x, torch.full((ROWS, 1), 0.0)], 1)
    x[::2, 6] = float("inf")
    torch.manual_seed(1)
    engine, module, optimizer, private = make(
        nn.Sequential(nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 2)).double(),
        DataLoader(TensorDataset(x.double(), y), batch_size=BATCH, shuffle=True),
        engine=PrivacyEngine(insecure_seed=3, callbacks=[seen.append]), noise_multiplier=0, clipping=clipping)
    (x, y), own = next(iter(private)), copy.deepcopy(module)
    backward(module, x, y)
    optimizer.step()
    good = torch.isfinite(x[:, 6])
    assert seen[0]["confidential"]["zeroed_records"] == (~good).sum() > 0
    # As if they had been absent.
    gradients = gradients_of(own, x[good], y[good])
    if clipping == "flat":
        scales = (1 / gradients.norm(dim=1)).clamp(max=1)
        assert torch.allclose(released(module), scales @ gradients / BATCH, rtol=1e-6, atol=1e-9)
    assert torch.isfinite(released(module)).all() and released(module).norm() * BATCH <= good.sum()


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_abort_at_a_loss_that_is_not_a_number_leaves_all_as_it_was(tmp_path, clipping):
    run = Run(tmp_path / "run", nonfinite="abort", clipping=clipping)
    with pytest.raises(discreet.Error, match="record 0 of the step is not finite.*nonfinite: zero"):
        run.step(factor=float("nan"))
    assert all(p.grad is None for p in run.net.parameters())
    run.check_nothing_happened()


def swap(net):
    net[3] = nn.Linear(8, 2)


def add_layer(net):
    net.append(nn.Linear(2, 2))


def add_parameter(net):
    net[0].register_parameter("extra", nn.Parameter(torch.zeros(3)))


def replace_parameter(net):
    net[3].bias = nn.Parameter(torch.zeros(2))


def tie(net):
    net[0].bias = net[2].bias


def remove(net):
    net[0].bias = None


def parametrize(net):
    nn.utils.parametrizations.weight_norm(net[3])


@pytest.mark.parametrize("change", [swap, add_layer, add_parameter, replace_parameter, tie, remove, parametrize])
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_a_changed_module_is_refused_and_all_is_as_it_was(tmp_path, change, when):
    run = Run(tmp_path / "run")
    kept = dict(run.net.named_parameters())
    run.before = run.state()
    x, y = next(run.batches)
    run.optimizer.zero_grad()
    with pytest.raises(discreet.Error, match="other parameters or layers than when make_private.*begin another run"):
        if when == "before":
            change(run.net)
        loss = F.cross_entropy(run.net(x), y)
        if when == "between":
            change(run.net)
        loss.backward()
        change(run.net)
        run.optimizer.step()
    assert all(p.grad is None for p in (*kept.values(), *run.net.parameters())), "no gradient without noise is left"
    run.net = run.module()  # in place of the changed one, for the comparison
    with torch.no_grad():
        for p, was in zip(run.net.parameters(), kept.values()):
            p.copy_(was)
    run.check_nothing_happened()


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_a_parameter_that_is_unfrozen_is_refused_and_all_is_as_it_was(tmp_path, when):
    run = Run(tmp_path / "run")
    x, y = next(run.batches)
    run.optimizer.zero_grad()
    with pytest.raises(discreet.Error, match="2.weight is trained now and was not.*Freeze it again"):
        if when == "before":
            run.net[2].requires_grad_(True)
        loss = F.cross_entropy(run.net(x), y)
        if when == "between":
            run.net[2].requires_grad_(True)
        loss.backward()
        run.net[2].requires_grad_(True)
        run.optimizer.step()
    assert all(p.grad is None for p in run.net.parameters())
    run.check_nothing_happened()


def test_freezing_it_again_goes_on():
    module = network()
    module[0].requires_grad_(False)
    engine, module, optimizer, private = make(module)
    module[0].requires_grad_(True)
    with pytest.raises(discreet.Error, match="Freeze it again"):
        steps(engine, module, optimizer, private, most=1)
    module[0].requires_grad_(False)
    steps(engine, module, optimizer, private)
    assert len(engine.accountant) == 10


@pytest.mark.parametrize("what, words", [
    (lambda run: run.begin(resume=True, rows=ROWS - 1), "declared_size was 400 and is 399.*begin another"),
    (lambda run: run.begin(resume=True, module=run.module().requires_grad_(True)), "another model; give the same"),
    (lambda run: run.begin(resume=True, module=run.module().append(nn.BatchNorm1d(2, affine=False).eval())), "another module"),
    (lambda run: make(run.module(), DataLoader(TensorDataset(run.x, run.y), batch_size=BATCH + 1, shuffle=True), epochs=5,
                      engine=PrivacyEngine(directory=run.path, resume=True)), "effective_batch_size"),
    (lambda run: make(run.module(), DataLoader(TensorDataset(run.x, run.y), batch_size=BATCH, shuffle=True), epochs=5,
                      engine=PrivacyEngine(directory=run.path, resume=True)), "begun with Adam and is resumed with SGD"),
    (lambda run: make(run.module(), run.private), "batch sampler"),
])
def test_resuming_with_something_else_is_refused_and_all_is_as_it_was(tmp_path, what, words):
    run = Run(tmp_path / "run")
    net, optimizer = run.net, run.optimizer
    run.engine.close()
    with pytest.raises(discreet.Error, match=words):
        what(run)
    run.net, run.optimizer = net, optimizer
    assert all(map(torch.equal, run.before[0], run.net.parameters()))
    assert lines(run.path, "iter") == run.before[4] and (run.path / "checkpoint.cbor").read_bytes() == run.before[5]
    run.check_goes_on()


# ---------------------------------------------------------------- mistakes in the loop


def same_as_plain(module, optimizer=None, most=3):
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
    # The last piece, begun again, neither.
    for x, y in private:
        backward(module, x, y)
        if engine._final:
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
        if engine._final:
            break
        optimizer.step()
    with pytest.raises(discreet.Error, match=rf"{engine._handed - 7} of the batch's {engine._handed} records|records; call"):
        optimizer.step()
    assert len(engine.accountant) == 0
    steps(engine, module, optimizer, private)  # the batch from its beginning
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
    with pytest.raises(discreet.Error, match="batch of step 1, but 2 were taken.*iterate it once"):
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
        with pytest.raises(discreet.Error, match="no batch of the private loader.*that make_private returned"):
            backward(module, x, y)
        with pytest.raises(discreet.Error, match="without a batch.*that make_private returned"):
            optimizer.step()
    assert torch.equal(before, weights_of(module)) and all(p.grad is None for p in module.parameters())
    steps(engine, module, optimizer, private)
    assert same_as_plain(module, most=None)
    with pytest.raises(discreet.Error, match="no batch of the private loader"):
        backward(module, x, y)


def test_changing_what_is_accounted_is_refused():
    for key, value in (("max_grad_norm", 0.1), ("noise_multiplier", 0.1), ("expected_batch_size", 400)):
        engine, module, optimizer, private = make()
        assert (optimizer.noise_multiplier, optimizer.max_grad_norm, optimizer.expected_batch_size) == (1.0, 1.0, BATCH)
        steps(engine, module, optimizer, private, most=1)
        setattr(optimizer, key, value)
        before = weights_of(module)
        with pytest.raises(discreet.Error, match=f"{key} was set to {value}.*Begin another run"):
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
    for convert, words in ((lambda m: m.half(), "float16"), (lambda m: m.double(), "float64"), (lambda m: m.bfloat16(), "bfloat16")):
        engine, module, optimizer, private = make()
        steps(engine, module, optimizer, private, most=1)
        convert(module)
        before = weights_of(module)
        x, y = next(iter(private))
        with pytest.raises(discreet.Error, match=f"0.weight is of torch.{words} and was of torch.float32.*before it"):
            backward(module, x.to(before.dtype), y)
        with pytest.raises(discreet.Error, match="0.weight is of"):
            optimizer.step()
        assert torch.equal(before, weights_of(module)) and len(engine.accountant) == 1


def test_half_precision_from_the_beginning_is_summed_and_noised_in_float32():
    results = []
    for dtype in (torch.float16, torch.float32):
        engine, module, optimizer, private = make(network(torch.float16).to(dtype), noise_multiplier=0)
        x, y = next(iter(private))
        backward(lambda x: module(x).float(), x.to(dtype), y)
        assert all(s.dtype == torch.float32 for s in engine._clipper.buffers.values())
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
        named, plain = nn.CrossEntropyLoss(reduction=reduction), lambda a, b, r=reduction: F.cross_entropy(a, b, reduction=r)
        for criterion in (named, plain):
            make(criterion=criterion, loss_reduction=reduction)
            with pytest.raises(discreet.Error, match=f"give loss_reduction='{reduction}'"):
                make(criterion=criterion, loss_reduction=other)


def test_modules_that_mix_records_in_training_only_are_refused():
    class Mixing(nn.Module):
        def __init__(self, mix):
            super().__init__()
            self.layer, self.mix = nn.Linear(6, 2), mix

        def forward(self, x):
            y = self.layer(x)
            return self.mix(y) if self.training else y

    with pytest.raises(discreet.Error, match="layer.weight is not that of autograd"):
        make(Mixing(lambda y: y - y.mean(0)).eval())
    with pytest.raises(discreet.Error, match="one record alone.*batch normalisation"):
        make(Mixing(lambda y: F.batch_norm(y, None, None, training=True)))
    steps(*make(Mixing(lambda y: F.dropout(y, 0.1))), most=2)


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
        engine, made, optimizer, private = make(made, DataLoader(TensorDataset(ids, ids[:, 0] % 2), batch_size=BATCH, shuffle=True))
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
    with pytest.raises(discreet.Error, match="another private run; make a new one"):
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
        with pytest.raises(discreet.Error, match="the one before failed"):
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
    with pytest.raises(discreet.Error, match="none of the module's since make_private"):
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
