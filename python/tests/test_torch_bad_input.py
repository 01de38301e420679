"""Bad input: an error that says what to do, and nothing has changed."""

import copy

import pytest

torch = pytest.importorskip("torch")
from test_torch_engine import BATCH, ROWS, data, make, network, steps, weights_of  # noqa: E402
from test_torch_hazards import backward, gradients_of, released  # noqa: E402
from test_torch_run import lines  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import discreet  # noqa: E402
from discreet.torch import BatchMemoryManager, PrivacyEngine  # noqa: E402

torch.set_num_threads(1)


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

    def another(self):
        """With a buffer more."""
        self.other = self.module().append(nn.BatchNorm1d(2, affine=False).eval())
        self.other_weights = weights_of(self.other)
        return self.other

    def begin(self, resume=False, rows=ROWS, module=None, batch=BATCH, **options):
        module = module or self.module()
        self.engine, self.net, self.optimizer, self.private = make(
            module, DataLoader(TensorDataset(self.x[:rows], self.y[:rows]), batch_size=batch, shuffle=True),
            torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=0.05),
            PrivacyEngine(directory=self.path, resume=resume), epochs=5, **self.options | options)

    def step(self, clean=False, factor=1.0):
        x, y = next(self.batches)
        self.optimizer.zero_grad()
        backward(self.net, torch.where(x.abs() < 100, x, 0) if clean else x, y, factor)
        self.optimizer.step()

    def state(self):
        optimizer = [t.clone() for s in self.optimizer.state_dict()["state"].values() for t in s.values()]
        return ([p.detach().clone() for p in self.net.parameters()], optimizer, len(self.engine.accountant),
                self.engine.get_epsilon(), lines(self.path, "iter"), (self.path / "checkpoint.cbor").read_bytes())

    def check_nothing_happened(self):
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
    with pytest.raises(discreet.Error, match="not finite.*nonfinite: zero to leave such records out") as error:
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
    with pytest.raises(discreet.Error, match="other parameters or layers than when make_private.*start a new run"):
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
    with pytest.raises(discreet.Error, match="2.weight requires a gradient now, but did not.*Freeze it again"):
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
    (lambda run: run.begin(resume=True, rows=ROWS - 1), "declared_size was 400 and is 399.*start another"),
    (lambda run: run.begin(resume=True, module=run.module().requires_grad_(True)), "another model; use the same"),
    (lambda run: run.begin(resume=True, module=run.another()), "another module or optimizer"),
    (lambda run: make(run.module(), DataLoader(TensorDataset(run.x, run.y), batch_size=BATCH + 1, shuffle=True), epochs=5,
                      engine=PrivacyEngine(directory=run.path, resume=True)), "effective_batch_size"),
    (lambda run: make(run.module(), DataLoader(TensorDataset(run.x, run.y), batch_size=BATCH, shuffle=True), epochs=5,
                      engine=PrivacyEngine(directory=run.path, resume=True)), "started with Adam, but is resumed with SGD"),
    (lambda run: run.begin(resume=True, loss_reduction="sum"),
     "started with loss_reduction='mean', but is resumed with loss_reduction='sum'; use the same"),
    (lambda run: run.begin(resume=True, clipping="automatic"), "started with clipping='flat', but is resumed with"),
    (lambda run: run.begin(resume=True, batch=BATCH // 2, gradient_accumulation_steps=2),
     "started with gradient_accumulation_steps=1, but is resumed with gradient_accumulation_steps=2"),
    (lambda run: make(run.module(), run.private), "batch sampler"),
])
def test_resuming_with_something_else_is_refused_and_all_is_as_it_was(tmp_path, what, words):
    run = Run(tmp_path / "run")
    net, optimizer = run.net, run.optimizer
    run.engine.close()
    with pytest.raises(discreet.Error, match=words):
        what(run)
    if hasattr(run, "other"):
        assert torch.equal(weights_of(run.other), run.other_weights), "half of a checkpoint was loaded"
    run.net, run.optimizer = net, optimizer
    assert all(map(torch.equal, run.before[0], run.net.parameters()))
    assert lines(run.path, "iter") == run.before[4] and (run.path / "checkpoint.cbor").read_bytes() == run.before[5]
    run.check_goes_on()


@pytest.mark.parametrize("options, words", [
    ({"max_physical_batch_size": 0}, "max_physical_batch_size is 0; it must be an integer of at least 1, or None"),
    ({"max_physical_batch_size": -1}, "max_physical_batch_size is -1; "),
    ({"max_physical_batch_size": 0.5}, "max_physical_batch_size is 0.5; "),
    ({"max_physical_batch_size": float("nan")}, "max_physical_batch_size is nan; "),
    ({"gradient_accumulation_steps": 2.5}, "gradient_accumulation_steps is 2.5; it must be an integer"),
    ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps is 0; it must be an integer"),
    ({"declared_size": "400"}, "declared_size is '400'; it must be an integer of at least 1, the maximum number of records"),
    ({"declared_size": float("nan")}, "declared_size is nan; "),
    ({"max_grad_norm": {}}, "max_grad_norm is {}, which bounds nothing; pass one number"),
    ({"groups": {"zz": "a"}}, "groups has 'zz', which is not a parameter.*named_parameters"),
    ({"groups": {"zz": "a", 1: "b"}}, "groups has 'zz', 1, which are not parameters"),
    ({"target_epsilon": 1e308}, "target_epsilon is 1e.308, but must be at most 1e.300"),
])
def test_arguments_that_mean_nothing_are_refused(options, words):
    with pytest.raises(discreet.Error, match=words):
        make(**options)


@pytest.mark.parametrize("most", [0, -1, 0.5, "8"])
def test_the_manager_of_pieces_refuses_what_is_no_number_of_records(most):
    private = make()[-1]
    with pytest.raises(discreet.Error, match="max_physical_batch_size is .*it must be an integer of at least 1"):
        BatchMemoryManager(data_loader=private, max_physical_batch_size=most)


def test_a_whole_number_may_be_written_as_a_float():
    engine, *_ = make(declared_size=1e3, max_physical_batch_size=8.0)
    assert engine._session.sampling()["declared_size"] == 1000


def test_a_checkpoint_of_an_earlier_version_says_nothing_of_arguments(tmp_path):
    run = Run(tmp_path / "run")
    del run.engine._arguments["loss_reduction"]
    run.engine.save_checkpoint()
    run.engine.close()
    run.begin(resume=True, loss_reduction="sum")
    assert len(run.engine.accountant) == 3
