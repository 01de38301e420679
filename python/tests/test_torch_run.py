"""The run directory of PyTorch training: trace, checkpoint, key, report."""

import hashlib
import json
import math
import os
import pathlib
import shutil
import stat
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import discreet  # noqa: E402
from discreet.torch import PrivacyEngine  # noqa: E402

torch.set_num_threads(1)
ROWS, BATCH = 200, 20


def begin(directory, *, resume=False, rows=ROWS, noise=1.0, epochs=3, width=6, data_seed=2, wrap=lambda dataset: dataset,
          private=None, **options):
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(data_seed))
    loader = DataLoader(wrap(TensorDataset(x, (x[:, 0] > 0).long())), batch_size=BATCH, shuffle=True)
    engine = PrivacyEngine(directory=directory, resume=resume, **options)
    return engine, *engine.make_private(module=module, optimizer=optimizer, data_loader=loader, noise_multiplier=noise,
                                        max_grad_norm=1.0, epochs=epochs, declared_size=ROWS + 50, **(private or {}))


def steps(module, optimizer, loader, most=None):
    for count, (x, y) in enumerate(loader):
        if count == most:
            break
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()


def lines(directory, kind=None):
    out = [json.loads(line) for line in (directory / "trace.jsonl").read_text().splitlines()]
    return [line for line in out if kind is None or line["kind"] == kind]


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_a_run_leaves_what_a_native_run_leaves(tmp_path):
    run = tmp_path / "run"
    engine, module, optimizer, loader = begin(run)
    for _ in range(3):
        steps(module, optimizer, loader)
    spent = engine.finish()
    engine.close()
    assert {path.name for path in run.iterdir()} == {"config.yaml", "secret.key", "trace.jsonl", "trace.seal",
                                                     "checkpoint.cbor", "model.safetensors"}
    assert stat.S_IMODE((run / "secret.key").stat().st_mode) == 0o600
    secret = (run / "secret.key").read_text().split()[1]
    for path in run.iterdir():
        if path.name != "secret.key":
            data = path.read_bytes()
            assert secret.encode() not in data and bytes.fromhex(secret) not in data
    header, end = lines(run)[0], lines(run)[-1]
    assert header["trainer"] == "discreet.torch" and header["confidential"] and header["assumed_exact"]
    assert len(lines(run, "iter")) == 39 == engine.planned_steps
    assert end["ended"] == "completed" and end["epsilon"]["upper"] == spent.upper
    assert end["model_sha256"] == hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    safetensors = pytest.importorskip("safetensors.torch")
    saved = safetensors.load_file(run / "model.safetensors")
    assert all(torch.equal(saved[name], p) for name, p in module.state_dict().items())


@pytest.mark.skipif("DISCREET" not in os.environ, reason="needs the command")
def test_the_report_reads_it(tmp_path):
    run = tmp_path / "run"
    engine, module, optimizer, loader = begin(run)
    for _ in range(3):
        steps(module, optimizer, loader)
    spent = engine.finish()
    engine.close()
    done = subprocess.run([os.environ["DISCREET"], "report", str(run)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (run / "report.html").read_text()
    assert f"{math.ceil(spent.upper * 100) / 100:.2f}" in page or f"{spent.upper:.4g}" in page
    assert "seal verified" in done.stdout and "Seal not verified" not in page
    done = subprocess.run([os.environ["DISCREET"], "trace", str(run)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    run = tmp_path / "run"
    engine, module, optimizer, loader = begin(run)
    steps(module, optimizer, loader)
    engine.save_checkpoint(note={"epoch": 1})
    spent, saved = engine.get_epsilon(), weights(module)
    engine.close()
    with pytest.raises(discreet.Error, match="closed"):
        steps(module, optimizer, loader, most=1)

    engine, module, optimizer, loader = begin(run, resume=True)
    assert torch.equal(saved, weights(module)) and engine.get_epsilon() == spent and len(engine.accountant) == 13
    assert engine.load_checkpoint()["note"] == {"epoch": 1}
    assert engine._session.charged_again == 0
    for _ in range(2):
        steps(module, optimizer, loader)
    assert engine.finish() and lines(run)[-1]["ended"] == "completed"
    engine.close()


def test_resuming_exactly_is_as_if_it_had_never_stopped(tmp_path):
    results = []
    for name, stops in (("whole", False), ("parts", True)):
        run = tmp_path / name
        engine, module, optimizer, loader = begin(run, insecure_seed=5)
        steps(module, optimizer, loader)
        if stops:
            engine.save_checkpoint()
            engine.close()
            engine, module, optimizer, loader = begin(run, resume=True, insecure_seed=5)
        steps(module, optimizer, loader)
        results.append((weights(module), engine.get_epsilon()))
        engine.close()
    assert torch.equal(results[0][0], results[1][0])


def test_steps_after_the_checkpoint_are_charged_again_under_other_noise(tmp_path):
    run = tmp_path / "run"
    engine, module, optimizer, loader = begin(run)
    steps(module, optimizer, loader)
    engine.save_checkpoint()
    spent = engine.get_epsilon()
    steps(module, optimizer, loader, most=4)  # lost
    first = [p.grad.clone() for p in module.parameters()]
    engine.close()

    engine, module, optimizer, loader = begin(run, resume=True)
    assert engine._session.charged_again == 4 and engine.get_epsilon() > spent and engine._session.lineage()
    steps(module, optimizer, loader, most=4)
    assert not any(torch.equal(a, p.grad) for a, p in zip(first, module.parameters()))
    engine.close()
    assert lines(run, "resumed")[0]["charged_again"] == 4


def first_release(run, **options):
    engine, module, optimizer, loader = begin(run, resume=True, **options)
    spent = engine.get_epsilon()
    steps(module, optimizer, loader, most=1)
    engine.close()
    return torch.cat([p.grad.flatten() for p in module.parameters()]), spent


def test_copies_of_a_run_draw_different_noise(tmp_path):
    run = tmp_path / "run"
    engine, module, optimizer, loader = begin(run)
    steps(module, optimizer, loader)
    engine.save_checkpoint()
    spent = engine.get_epsilon()
    shutil.copytree(run, tmp_path / "copy")
    shutil.copytree(run, tmp_path / "third")
    steps(module, optimizer, loader, most=1)  # the original continues
    releases = [torch.cat([p.grad.flatten() for p in module.parameters()])]
    engine.close()
    for name in ("copy", "third"):
        release, charged = first_release(tmp_path / name)
        assert charged == spent, "nothing was executed twice"
        assert not any(torch.any(release == other) for other in releases)
        releases.append(release)
    assert lines(tmp_path / "copy", "resumed")[0]["noise"] == "fresh"


def test_copies_of_a_run_that_was_never_begun_draw_different_noise(tmp_path):
    run = tmp_path / "run"
    engine, *_ = begin(run)
    engine.close()
    for name in ("trace.jsonl", "trace.seal"):  # killed before its first line
        (run / name).unlink()
    shutil.copytree(run, tmp_path / "copy")
    a, b = (first_release(path)[0] for path in (run, tmp_path / "copy"))
    assert not torch.any(a == b)


def test_an_epoch_of_balls_and_bins_that_is_cut_is_charged_again(tmp_path):
    run, private = tmp_path / "run", {"sampling": "balls_and_bins"}
    engine, module, optimizer, loader = begin(run, private=private)
    steps(module, optimizer, loader)
    engine.save_checkpoint()
    whole = engine.get_epsilon()
    engine.close()
    engine, module, optimizer, loader = begin(run, resume=True, private=private)
    assert engine.get_epsilon() == whole, "between epochs nothing is charged"
    steps(module, optimizer, loader, most=3)
    engine.save_checkpoint()
    cut = engine.get_epsilon()
    engine.close()
    # The bins of the rest are drawn again: a record may come twice.
    engine, *_ = begin(run, resume=True, private=private)
    assert engine._session.charged_again == 3 and engine.get_epsilon() > cut
    again = engine.get_epsilon()
    engine.close()
    engine, *_ = begin(run, resume=True, private=private)
    assert engine.get_epsilon() > again
    engine.close()


class Opaque(torch.utils.data.Dataset):
    def __init__(self, inner):
        self.records = list(inner)

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        return self.records[i]


def test_other_records_are_refused_where_their_digest_is_known(tmp_path):
    def run_of(name, **options):
        engine, module, optimizer, loader = begin(tmp_path / name, **options)
        steps(module, optimizer, loader, most=2)
        engine.save_checkpoint()
        engine.close()

    run_of("tensors")
    with pytest.raises(discreet.Error, match="other records"):
        begin(tmp_path / "tensors", resume=True, data_seed=3)
    first_release(tmp_path / "tensors")

    digest = "ab" * 32
    run_of("given", wrap=Opaque, private={"data_digest": digest})
    for other in ("cd" * 32, None):
        with pytest.raises(discreet.Error, match="other records"):
            begin(tmp_path / "given", resume=True, wrap=Opaque, private={"data_digest": other})
    first_release(tmp_path / "given", wrap=Opaque, private={"data_digest": bytes.fromhex(digest)})
    with pytest.raises(discreet.Error, match="64 hexadecimal digits"):
        begin(tmp_path / "bad", private={"data_digest": "ab"})
    assert not (tmp_path / "bad").exists()

    # A run that knew only their number, as those of earlier versions, is resumed by it.
    run_of("number", wrap=Opaque)
    first_release(tmp_path / "number")
    with pytest.raises(discreet.Error, match="another number of records"):
        begin(tmp_path / "number", resume=True, rows=ROWS - 1)


def test_another_data_set_model_or_setting_is_refused_and_nothing_changes(tmp_path):
    run = tmp_path / "run"
    engine, module, optimizer, loader = begin(run)
    steps(module, optimizer, loader)
    engine.save_checkpoint()
    engine.close()
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    for options, words in (({"rows": ROWS - 1}, "another number of records"), ({"width": 5}, "another model"),
                           ({"noise": 2.0}, "noise_multiplier was 1")):
        with pytest.raises(discreet.Error, match=words):
            begin(run, resume=True, **options)
    with pytest.raises(discreet.Error, match="already contains a run"):
        begin(run)
    (run / "checkpoint.cbor").write_bytes(before["checkpoint.cbor"][:-1])
    with pytest.raises(discreet.Error):
        begin(run, resume=True)
    (run / "checkpoint.cbor").write_bytes(before["checkpoint.cbor"])
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_failure_is_in_the_trace_and_the_checkpoint_is_intact(tmp_path):
    run = tmp_path / "run"
    torch.manual_seed(1)
    module = nn.Linear(3, 1)
    x = torch.randn(60, 3)
    loader = DataLoader(TensorDataset(x), batch_size=20, shuffle=True)
    engine = PrivacyEngine(directory=run)
    module, optimizer, loader = engine.make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1), data_loader=loader, noise_multiplier=1.0,
        max_grad_norm=1.0, nonfinite="abort")
    batches = iter(loader)
    (x,) = next(batches)
    module(x).mean().backward()
    optimizer.step()
    engine.save_checkpoint()
    saved = (run / "checkpoint.cbor").read_bytes()
    (x,) = next(batches)
    with pytest.raises(discreet.Error) as error:
        (module(x) * float("nan")).mean().backward()
    assert error.value.code == "INVALID_GRADIENT"
    with pytest.raises(discreet.Error, match="without a backward pass"):
        optimizer.step()
    assert (run / "checkpoint.cbor").read_bytes() == saved
    assert lines(run, "failure")[0]["failure_code"] == "INVALID_GRADIENT" and len(lines(run, "iter")) == 1
    engine.close()


def test_a_killed_process_leaves_a_run_that_can_be_resumed(tmp_path):
    run = tmp_path / "run"
    program = (f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})\n"
               "import os, pathlib, test_torch_run as t\n"
               f"engine, module, optimizer, loader = t.begin(pathlib.Path({str(run)!r}))\n"
               "t.steps(module, optimizer, loader)\nengine.save_checkpoint()\n"
               "t.steps(module, optimizer, loader, most=3)\nos._exit(9)\n")
    assert subprocess.run([sys.executable, "-c", program]).returncode == 9
    engine, module, optimizer, loader = begin(run, resume=True)
    assert len(engine.accountant) == 13 and engine._session.charged_again == 3
    steps(module, optimizer, loader, most=2)
    engine.close()


def cut_lines(run, count):
    whole = (run / "trace.jsonl").read_text().splitlines(keepends=True)
    (run / "trace.jsonl").write_text("".join(whole[:-count]))


@pytest.mark.parametrize("count_file", [True, False])
def test_lines_cut_off_after_the_checkpoint_do_not_lower_what_is_charged_again(tmp_path, count_file):
    """Somebody who writes to the folder cannot hide steps that were released: they are counted under the run's key, and
    without that count the whole plan is charged."""
    run = tmp_path / "run"
    engine, module, optimizer, loader = begin(run, noise=20.0)
    steps(module, optimizer, loader)
    engine.save_checkpoint()
    done = len(lines(run, "iter"))
    steps(module, optimizer, loader, most=4)  # lost
    engine.close()
    cut_lines(run, 3)
    assert len(lines(run, "iter")) == done + 1
    if not count_file:
        (run / "trace.steps").unlink()
    engine, module, optimizer, loader = begin(run, resume=True, noise=20.0)
    planned = lines(run)[0]["planned_steps"]
    assert engine._session.charged_again == (4 if count_file else planned - done)
    engine.close()
    # Charged once, and not with every resume.
    engine, *_ = begin(run, resume=True, noise=20.0)
    assert engine._session.charged_again == 0
    engine.close()


@pytest.mark.skipif("DISCREET" not in os.environ, reason="needs the command")
def test_a_run_is_released_and_its_gate_answers(tmp_path):
    """The user's path: train, finish, release, ask. A model with a table of other types than float32."""
    run = tmp_path / "run"
    engine, module, optimizer, loader = begin(run)
    module.register_buffer("seen", torch.arange(3))
    for _ in range(3):
        steps(module, optimizer, loader)
    claim = engine.finish()
    engine.close()
    command = os.environ["DISCREET"]
    subprocess.run([command, "keygen", str(tmp_path / "release")], check=True, capture_output=True)
    done = subprocess.run([command, "release", str(run), "--key", str(tmp_path / "release.key"), "--json"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert claim.upper <= said["epsilon_upper"] <= claim.upper + 2e-6 and said["adjacency"] == "add_remove"
    assert said["model"]["model.safetensors"] == hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    gate = [command, "gate", str(run / "release.json"), "--public-key", str(tmp_path / "release.pub"), "--json"]
    asked = subprocess.run(gate, capture_output=True, text=True, input='{"generation_class": "predict", "purpose": "any"}')
    assert json.loads(asked.stdout)["allowed"], asked.stdout + asked.stderr
    # Another model's weights are not signed under this claim.
    model = bytearray((run / "model.safetensors").read_bytes())
    model[-1] ^= 1
    (run / "model.safetensors").write_bytes(model)
    again = subprocess.run([command, "release", str(run), "--key", str(tmp_path / "release.key")], capture_output=True,
                           text=True)
    assert again.returncode == 1 and "is not the model of this run" in again.stderr


@pytest.mark.parametrize("directory", [True, False])
def test_a_run_cut_short_is_not_completed_and_claims_its_plan(tmp_path, directory):
    whole, module, optimizer, loader = begin(tmp_path / "whole")
    for _ in range(3):
        steps(module, optimizer, loader)
    planned = whole.finish()
    whole.close()
    engine, module, optimizer, loader = begin(tmp_path / "run" if directory else None)
    steps(module, optimizer, loader, most=5)
    for said in ("completed", "budget_reached"):
        with pytest.raises(discreet.Error, match="5 of 39 planned steps") as caught:
            engine.finish(said)
        assert caught.value.code == "INVALID_INPUT"
    claim = engine.finish()
    assert claim.upper == planned.upper > engine.get_epsilon().upper
    if directory:
        end = lines(tmp_path / "run")[-1]
        assert end["kind"] == "run_end" and end["ended"] == "interrupted" and end["steps"] == 5
        assert end["epsilon"] == {"lower": claim.lower, "upper": claim.upper}
    engine.close()


def small_budget(directory, **settings):
    """One epoch costs 6.04, within the safety reserve; the second does not fit."""
    torch.manual_seed(3)
    module = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x = torch.randn(ROWS, 4)
    loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=BATCH, shuffle=True)
    engine = PrivacyEngine(directory=directory)
    return engine, *engine.make_private(module=module, optimizer=optimizer, data_loader=loader, noise_multiplier=0.7,
                                        max_grad_norm=1.0, epochs=9, declared_size=ROWS, target_epsilon=6.5, **settings)


@pytest.mark.skipif("DISCREET" not in os.environ, reason="needs the command")
def test_warnings_and_the_budgets_end_are_recorded_as_native_runs_record_them(tmp_path):
    run = tmp_path / "run"
    engine, module, optimizer, loader = small_budget(run)
    with pytest.raises(discreet.Error, match="above the target"):
        for _ in range(9):
            steps(module, optimizer, loader)
    claim = engine.finish()
    engine.close()
    assert all("safety reserve" in line["warning"] for line in lines(run, "warning")) and lines(run, "warning")
    failure, end = lines(run, "failure"), lines(run)[-1]
    assert len(failure) == 1 and failure[0]["failure_code"] == "PRIVACY_BUDGET_EXCEEDED"
    assert end["ended"] == "budget_reached" and end["epsilon"]["upper"] == claim.upper <= 6.5
    done = subprocess.run([os.environ["DISCREET"], "report", str(run)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "warning: epsilon" in (run / "report.html").read_text()


def test_records_that_are_all_left_out_are_said(tmp_path):
    engine, module, optimizer, loader = begin(tmp_path / "run")
    for x, y in loader:
        optimizer.zero_grad()
        (F.cross_entropy(module(x), y) * float("nan")).backward()
        optimizer.step()
        break
    with pytest.warns(UserWarning, match="holds noise only"):
        engine.finish()
    engine.close()
    assert lines(tmp_path / "run")[-1]["zeroed_steps"] == 1


def test_released_metrics_are_recorded(tmp_path):
    engine, module, optimizer, loader = small_budget(tmp_path / "run", settings={"metrics": {"release": "dp"}})
    steps(module, optimizer, loader, most=2)
    engine.close()
    assert all(0 <= line["released"]["clip_fraction"] <= 1 for line in lines(tmp_path / "run", "iter"))


@pytest.mark.parametrize("epochs", [3, None])
def test_training_on_after_finish_is_recorded_and_can_be_resumed(tmp_path, epochs):
    run = tmp_path / "run"
    engine, module, optimizer, loader = begin(run, epochs=epochs)
    steps(module, optimizer, loader)
    engine.finish()
    steps(module, optimizer, loader, most=4)
    engine.close()  # without a second end
    assert (run / "trace.steps").exists() and len(lines(run, "iter")) == 13 + 4
    resumed, module, optimizer, loader = begin(run, epochs=epochs, resume=True)
    # The steps after the end are charged once more, and no others; an epoch counts from its first step.
    assert resumed.get_epsilon(1e-5) < 1e-6 + discreet.account(sampling_rate=20 / 250, noise_multiplier=1, steps=13 + 13,
                                                        delta=1e-5).epsilon.upper
    steps(module, optimizer, loader, most=1)
    assert resumed.finish() is not None


def test_a_batch_that_was_released_enters_no_second_step_whatever_fails_after(tmp_path):
    engine, module, optimizer, loader = begin(tmp_path / "run")
    x, y = next(iter(loader))
    optimizer.zero_grad()
    F.cross_entropy(module(x), y).backward()

    def fails(*_):
        raise MemoryError

    engine._give = fails
    with pytest.raises(MemoryError):
        optimizer.step()
    del engine._give
    optimizer.zero_grad()
    with pytest.raises(discreet.Error):
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    assert len(lines(tmp_path / "run", "iter")) <= 1
