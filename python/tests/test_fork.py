"""A forked process holds its parent's keys: it must draw nothing from them, or both would release with the same noise."""

import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest

import discreet
from discreet.random import Generator
from discreet.unlearning import MemoryPair, PrivacyOdometer

CONFIG = {"security": {"differential_privacy": {
    "declared_size": 1000, "effective_batch_size": 100, "target_epsilon": 8.0, "target_delta": 1e-5, "noise_multiplier": 1.0,
    "target_steps": 100}}}


def in_child(call):
    """What the call returns in a forked process, or the error's code and sentence."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = repr(call())
        except discreet.Error as error:
            said = f"{error.code}: {error.sentence}"
        except BaseException as error:
            said = f"unexpected {error!r}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def is_refused(said):
    return said.startswith("RNG_CONSUMPTION_VIOLATION") and "after fork()" in said


def mechanism(**options):
    return discreet.Mechanism(CONFIG, {"w": [3]}, **options)


GRADIENTS = {"w": np.ones((5, 3), np.float32)}


@pytest.mark.parametrize("options", [{}, {"key": bytes(32)}])
def test_a_mechanism_releases_nothing_in_a_forked_process(options):
    m = mechanism(**options)
    m.apply(GRADIENTS)
    sampler = m.sampler(1000)
    assert is_refused(in_child(lambda: m.apply(GRADIENTS)))
    assert is_refused(in_child(lambda: m.sampler(1000).batch(1))) and is_refused(in_child(lambda: sampler.batch(1)))
    saved = m.save()

    def restored():
        m.restore(saved, released=2)
        return m.apply(GRADIENTS)

    assert is_refused(in_child(restored))
    m.apply(GRADIENTS)
    assert m.t == 2 and len(sampler.batch(1)) > 0
    # What does not draw works, and so does a mechanism of the child's own.
    assert in_child(lambda: m.t) == "2"
    assert in_child(lambda: mechanism().apply(GRADIENTS).t) == "0"


def test_generators_and_unlearning_draw_nothing_in_a_forked_process():
    secure, seeded = Generator.secure(), Generator.insecure(1)
    assert is_refused(in_child(lambda: secure.fill_gaussian(np.empty(4))))
    assert is_refused(in_child(lambda: secure.fill_gaussian(np.empty(1 << 20), threads=4)))
    assert is_refused(in_child(lambda: secure.fill_discrete_gaussian(np.empty(4, np.int64), (4, 1))))
    assert is_refused(in_child(lambda: secure.permutation(10)))
    assert in_child(lambda: seeded.fill_gaussian(np.empty(4))) == "None", "a public seed may be shared"

    odometer = PrivacyOdometer(1.0, 1e-5, 0.1, gamma=5.0)
    model = MemoryPair(2, odometer)
    rng = np.random.default_rng(1)
    records = [(rng.normal(size=2), float(rng.normal())) for _ in range(400)]
    for record in records[:100]:
        model.calibrate_step(*record)
    model.finalize_calibration(5.0)
    for record in records:
        model.insert(*record)
        if model.ready_to_predict:
            break
    odometer.finalize_with(model.stats, 1000, model.inserts_seen)
    assert is_refused(in_child(lambda: model.delete(*records[0])))



def test_a_pool_of_forked_processes_is_refused():
    global inherited
    inherited = mechanism()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for _ in range(2):
            with pytest.raises(discreet.Error, match="after fork"):
                pool.apply(_release)


def _release():
    inherited.apply(GRADIENTS)


TORCH = """
import os, sys, pathlib
sys.path.insert(0, {here!r})
import torch, discreet
import test_torch_run as t
run = pathlib.Path(sys.argv[1])
engine, module, optimizer, loader = t.begin(run)
t.steps(module, optimizer, loader, most=2)
child = os.fork()
if child == 0:
    said = []
    for what in (lambda: t.steps(module, optimizer, loader), engine.save_checkpoint, engine.finish):
        try:
            what()
            said.append("went on")
        except discreet.Error as error:
            said.append(str(error))
    print(*said, sep="\\n", flush=True)
    os._exit(0)
os.waitpid(child, 0)
t.steps(module, optimizer, loader, most=2)
engine.save_checkpoint()
engine.close()
engine, *_ = t.begin(run, resume=True)
print(len(engine.accountant), engine._session.charged_again)
"""


def test_a_pytorch_run_belongs_to_the_process_that_began_it(tmp_path):
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", TORCH.format(here=os.path.dirname(__file__)), str(tmp_path / "run")],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *refused, last = done.stdout.splitlines()
    assert len(refused) == 3 and "fork" in refused[0] and all("forked" in line for line in refused[1:])
    assert last == "4 0", "the child wrote into the run of its parent"


def test_workers_of_a_loader_draw_nothing_and_work():
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader, TensorDataset

    from discreet.torch import PrivacyEngine
    x = torch.randn(60, 3)
    module = torch.nn.Linear(3, 1)
    loader = DataLoader(TensorDataset(x), batch_size=20, shuffle=True, num_workers=2, multiprocessing_context="fork")
    engine = PrivacyEngine()
    module, optimizer, loader = engine.make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1), data_loader=loader, noise_multiplier=1.0)
    for (x,) in loader:
        module(x).mean().backward()
        optimizer.step()
    assert len(engine.accountant) == 3
