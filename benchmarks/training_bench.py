"""An optimizer step of a network 784-512-512-10 on batches of 256: private against ordinary, and against Opacus.

Ours draws Poisson batches of mean 256, copies the records, and appends each step to the trace; the peer takes fixed
batches of 256 that are there already. SGD with momentum and one flat clip bound on both sides. Ordinary, private and
peer take turns of 40 steps, as a run takes thousands; times are medians over all turns, without the first step of each: the
threads of the side before it wait actively for some milliseconds, on the core that it needs. """

import pathlib
import statistics
import subprocess
import time
import warnings

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks/training_bench"
BATCH, TURNS, STEPS, THREADS = 256, 6, 40, 2
SLOW_STEPS = 2  # of a turn, for a peer that takes a second each


class Ours:
    def __init__(self, mode):
        self.mode = mode

    def steps(self, program, count):
        program.stdin.write(f"{self.mode} {THREADS} {count}\n")
        program.stdin.flush()
        return [float(second) for second in program.stdout.readline().split()]


class Opacus:
    """Private SGD by PyTorch; mode is "hooks" or "ghost"."""

    def __init__(self, mode):
        import torch
        from opacus import PrivacyEngine

        torch.manual_seed(1)
        model = torch.nn.Sequential(
            torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
            torch.nn.Linear(512, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        criterion = torch.nn.CrossEntropyLoss()
        self.x, self.y = torch.rand(BATCH, 784), torch.randint(0, 10, (BATCH,))
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(self.x, self.y), batch_size=BATCH)
        made = PrivacyEngine().make_private(
            module=model, optimizer=optimizer, criterion=criterion, data_loader=data, noise_multiplier=1.1,
            max_grad_norm=1.0, poisson_sampling=False, grad_sample_mode=mode)
        self.model, self.optimizer = made[0], made[1]
        self.criterion = made[2] if mode == "ghost" else criterion

    def steps(self, _, count):
        took = []
        for _ in range(count):
            begin = time.perf_counter()
            self.optimizer.zero_grad()
            self.criterion(self.model(self.x), self.y).backward()
            self.optimizer.step()
            took.append(time.perf_counter() - begin)
        return took


def peak_memory(mode):
    return int(subprocess.run([PROGRAM, "memory", mode, str(THREADS)], check=True, capture_output=True).stdout)


def digest(mode, threads):
    return subprocess.run([PROGRAM, "digest", mode, str(threads)], check=True, capture_output=True).stdout


def run():
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(THREADS)
    for mode in ("ghost", "fused"):
        assert digest(mode, 1) == digest(mode, 2) == digest(mode, 3), "the bits depend on the number of threads"
    sides = {mode: Ours(mode) for mode in ("ordinary", "ghost", "fused")}
    sides |= {f"Opacus {mode}": Opacus(mode) for mode in ("hooks", "ghost")}
    took = {name: [] for name in sides}
    with subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        for turn in range(TURNS + 1):
            for name, side in sides.items():
                seconds = side.steps(program, SLOW_STEPS if name == "Opacus hooks" else STEPS)
                if turn > 0:  # the first is for warming up
                    took[name] += seconds[1:]
        program.stdin.close()
    median = {name: statistics.median(seconds) for name, seconds in took.items()}

    work = "step of 784-512-512-10, batch 256, 2 threads"
    return [
        *({"work": f"private {work}, {mode}", "ours": median[mode], "peer": "our ordinary step",
           "theirs": median["ordinary"], "at_least": round(1 / 1.35, 3)} for mode in ("ghost", "fused")),
        {"work": f"private {work}, ghost", "ours": median["ghost"], "peer": "Opacus hooks",
         "theirs": median["Opacus hooks"], "at_least": 10},
        {"work": f"private {work}, ghost", "ours": median["ghost"], "peer": "Opacus ghost",
         "theirs": median["Opacus ghost"], "at_least": 2},
        # Bytes in the place of seconds: the ratio is what counts.
        {"work": f"peak memory, private {work}", "ours": peak_memory("ghost"), "peer": "our ordinary step",
         "theirs": peak_memory("ordinary"), "at_least": round(1 / 1.1, 3)},
    ]
