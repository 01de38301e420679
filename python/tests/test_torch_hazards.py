"""What other libraries got wrong without saying so."""

import copy
import math
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
from test_torch_engine import BATCH, ROWS, data, loader, make, network, steps, weights_of  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402

import discreet  # noqa: E402
from discreet.torch import PrivacyEngine  # noqa: E402

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
            x, y, numbers = next(iter(private))
            backward(module, x.double(), y)
            optimizer.step()
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
    sizes = []
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
torch.set_num_threads(1)
made = make(engine=PrivacyEngine())  # before anything says that there are several
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=int(sys.argv[1]), world_size=2)
for train in (lambda: steps(*made, most=1), lambda: make(engine=PrivacyEngine())):
    try:
        train()
        print("went on")
    except discreet.Error as error:
        print(error)
assert torch.equal(weights_of(made[1]), weights_of(network())) and all(p.grad is None for p in made[1].parameters())
assert len(made[0].accountant) == 0
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def test_several_ranks_are_refused_and_nothing_is_released(tmp_path):
    # Opacus' ranks skip empty batches by themselves, and draw the same masks if seeded alike.
    program = RANK.format(here=os.path.dirname(__file__))
    ranks = [subprocess.Popen([sys.executable, "-c", program, str(rank), str(tmp_path / "group")], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for rank in range(2)]
    for rank in ranks:
        out, err = rank.communicate(timeout=300)
        assert rank.returncode == 0, err
        assert len(out.splitlines()) == 2 and all("2 ranks" in line and "Train in one process" in line
                                                  for line in out.splitlines())


def test_a_group_of_one_rank_is_one_process_and_its_wrapper_is_refused(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:
        with pytest.raises(discreet.Error, match="module.module"):
            make(nn.parallel.DistributedDataParallel(network()))
        engine, module, optimizer, private = make()
        steps(engine, module, optimizer, private, most=1)
        with pytest.raises(discreet.Error, match="call the module itself"):
            steps(engine, nn.parallel.DistributedDataParallel(module), optimizer, private)
    finally:
        torch.distributed.destroy_process_group()


def test_torchrun_without_a_process_group_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    engine, module, optimizer, private = make()
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(discreet.Error, match="WORLD_SIZE=4.*no process group.*unset WORLD_SIZE"):
        make()
    with pytest.raises(discreet.Error, match="WORLD_SIZE=4"):
        steps(engine, module, optimizer, private)
    assert len(engine.accountant) == 0


SHARDED = """
import sys
sys.path.insert(0, {here!r})
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import distribute_module
from test_torch_hazards import discreet, make, network

torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))


def inside(wrap):
    module = network()
    wrap(module[0])
    return module


def wrapped():
    return nn.Sequential(nn.parallel.DistributedDataParallel(nn.Linear(6, 6)), network())


for made in (lambda: fully_shard(network(), mesh=mesh), lambda: inside(lambda layer: fully_shard(layer, mesh=mesh)),
             lambda: distribute_module(network(), mesh), wrapped,
             lambda: FullyShardedDataParallel(network(), device_id=torch.device("cpu"))):
    try:
        module = made()
    except Exception as error:
        print("cannot be made here:", type(error).__name__)
        continue
    try:
        make(module)
        print("went on")
    except discreet.Error as error:
        print(error.sentence)
torch.distributed.destroy_process_group()
"""


def test_sharded_modules_are_refused_before_anything_fails(tmp_path):
    program = SHARDED.format(here=os.path.dirname(__file__))
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "group")], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 5, done.stdout
    for line, words in zip(said, ("sharded by FSDP", "0 is sharded by FSDP", "DTensor", "0 is wrapped by Distributed",
                                  "sharded by FSDP")):
        assert words in line or "cannot be made here" in line, line
    assert sum("cannot be made here" in line for line in said) <= 1, done.stdout


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


@pytest.mark.parametrize("settings, argument", [
    ({"effective_batch_size": 300}, "batch_size"), ({"declared_size": BATCH}, "declared_size"),
    ({"adjacency": "add_remove"}, "declared_size"), ({"security.differential_privacy.sampling_rate": 0.9}, "batch_size"),
    ({"clipping": {"norm": 0.01}}, "max_grad_norm"), ({"clip_norm_map.0.weight": 0.1}, "max_grad_norm"),
    ({"clipping.strategy": "per_layer"}, "clipping"), ({"seed": 3}, "insecure_seed"), ({"secure": False}, "insecure_seed"),
    ({"noise_multiplier": 8.0}, "noise_multiplier"), ({"sampling_mode": "SHUFFLED_EPOCH_V1"}, "sampling"),
    ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps"), ({"accountant": "rdp"}, "PrivacyEngine"),
    ({"clipping": "per_layer"}, "a section of the configuration")])
def test_settings_change_nothing_that_the_clipper_and_the_loader_have_from_arguments(settings, argument):
    # The noise would be that of another batch, bound or adjacency than the gradients and batches have.
    with pytest.raises(discreet.Error, match=argument):
        make(engine=PrivacyEngine(), settings=settings)


def test_settings_of_sections_keep_what_the_arguments_say():
    engine, *_ = make(engine=PrivacyEngine(), clipping="adaptive", settings={"clipping": {"adaptive": {"noise": 2.0}}})
    assert engine._session.sampling()["batch_size"] == BATCH and engine._session.clip_bounds() == [1.0]
