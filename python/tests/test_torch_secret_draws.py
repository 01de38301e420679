"""Nobody knows the random numbers of a private step, and the number of its pieces is public."""

import random

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
from test_torch_engine import loader, make  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from discreet.torch import PrivacyEngine  # noqa: E402
from discreet.torch.secret_draws import SecretDraws, set_all, set_torch  # noqa: E402

torch.set_num_threads(1)


def seed_everything(number):
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


class Noisy(nn.Module):
    def forward(self, x):
        SEEN.append((random.random(), float(np.random.rand())))
        return x


SEEN: list[tuple[float, float]] = []


def test_a_seed_in_the_loop_does_not_decide_what_the_module_draws_elsewhere():
    module = nn.Sequential(nn.Linear(6, 2), Noisy())
    _, module, optimizer, private = make(module, engine=PrivacyEngine(), self_check=False)
    SEEN.clear()
    for step, (x, y) in enumerate(private):
        if step == 3:
            break
        optimizer.zero_grad()
        seed_everything(0)
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    assert len({first for first, _ in SEEN}) == len({second for _, second in SEEN}) == len(SEEN) >= 3


def numbers(engine, steps=3):
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    _, module, optimizer, private = make(module, engine=engine)
    taken = []
    module[1].register_forward_hook(lambda _m, x, y: taken.append((y / x[0]).nan_to_num().flatten()[:64].clone()))
    batches = iter(private)
    for _ in range(steps):
        x, y = next(batches)
        optimizer.zero_grad()
        seed_everything(0)  # as a loop does that wants to repeat its draws
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    return taken


def test_a_seed_in_the_loop_does_not_decide_the_dropout():
    one, two = numbers(PrivacyEngine()), numbers(PrivacyEngine())
    assert not torch.equal(one[0], one[1]) and not torch.equal(one[1], one[2])
    assert not torch.equal(one[0], two[0])


def test_a_run_with_an_insecure_seed_repeats_the_draws_of_its_loop():
    one, two = numbers(PrivacyEngine(insecure_seed=3)), numbers(PrivacyEngine(insecure_seed=3))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True)) and torch.equal(one[0], one[1])


class Drawing(Dataset):
    """As an augmentation does: returns what it draws."""

    def __len__(self):
        return 400

    def __getitem__(self, i):
        return torch.tensor([float(torch.rand(())), random.random(), float(np.random.rand())]), i % 2


@pytest.mark.parametrize("workers", [0, 1])
def test_a_seed_before_the_loader_does_not_decide_what_transforms_draw(workers):
    def drawn():
        module = nn.Linear(3, 2)
        *_, private = make(module, DataLoader(Drawing(), batch_size=40, shuffle=True, num_workers=workers),
                           engine=PrivacyEngine())
        seed_everything(0)
        return next(iter(private))[0]

    one, two = drawn(), drawn()
    for kind in range(3):  # torch, random, numpy
        assert not set(one[:, kind].tolist()) & set(two[:, kind].tolist())


def test_a_worker_still_runs_the_function_of_its_loader(tmp_path):
    def init(worker):
        (tmp_path / f"worker-{worker}").touch()

    *_, private = make(data_loader=loader(num_workers=1, worker_init_fn=init), engine=PrivacyEngine())
    next(iter(private))
    assert (tmp_path / "worker-0").exists()


def test_a_checkpointed_module_draws_the_same_numbers_again():
    module = nn.Dropout(0.5)
    module.register_forward_pre_hook(SecretDraws(lambda: 1))
    x = torch.rand(20, 6).add_(1).requires_grad_()
    y = checkpoint(module, x, use_reentrant=False)
    y.sum().backward()  # runs the module again
    torch.testing.assert_close(x.grad, (y / x).detach())
    assert not torch.equal(module(x), y), "the next pass draws others"


@pytest.mark.parametrize("set_numbers", [set_torch, set_all])
def test_the_numbers_follow_from_all_bits_of_the_secret(set_numbers):
    """Of 256 secrets that differ in one bit, no two give a common draw of 53 bits (false alarm: 2⁻³⁵)."""
    found = []
    for bit in range(256):
        set_numbers((1 << bit).to_bytes(32, "little"))
        found.append(float(torch.rand((), dtype=torch.float64)))
    assert len(set(found)) == 256
    set_numbers((1).to_bytes(32, "little"))
    assert float(torch.rand((), dtype=torch.float64)) == found[0]
    # Not left over from the generator before: torch keeps the second number of a pair of normal ones.
    pairs = []
    for before in (0, 1):
        torch.manual_seed(before)
        torch.randn(())
        set_numbers(bytes(32))
        pairs.append(torch.randn(3))
    assert torch.equal(*pairs)


def test_the_draws_of_a_seeded_generator_are_those_of_a_mersenne_twister():
    """The mean of 10⁶ draws is 1/2 within five standard deviations, and so is that of the first draws of 2,000 seeds
    (false alarm: 10⁻⁶)."""
    set_torch(b"a" * 32)
    assert abs(float(torch.rand(10**6, dtype=torch.float64).mean()) - 0.5) < 5 / (12 * 10**6) ** 0.5
    firsts = []
    for number in range(2000):
        set_torch(number.to_bytes(32, "little"))
        firsts.append(float(torch.rand((), dtype=torch.float64)))
    assert abs(sum(firsts) / 2000 - 0.5) < 5 / (12 * 2000) ** 0.5


def test_the_number_of_pieces_is_public():
    """A scheduler or a counter in the loop must not see how many records were drawn."""
    _, module, optimizer, private = make(max_physical_batch_size=7, engine=PrivacyEngine())
    # Mean 40 of 400 and six deviations of 6 above it: 76 records, in 11 pieces of 7.
    assert private.batches.count == 11
    sizes, pieces = [], 0
    for x, y in private:
        if pieces % 11 == 0:
            optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        pieces += 1
        sizes.append(len(x))
        if pieces % 11 == 0:
            optimizer.step()
    assert pieces == len(private) == 11 * 10 and max(sizes) <= 7
