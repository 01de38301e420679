"""A private step of PyTorch against the ordinary step of the same model, and against Opacus: same optimizer, same batch.

Ordinary, private and peer take turns on one batch that is there already; times are medians over all turns. Noise, the
accountant and the step's metrics are part of the private step. TORCH_BENCH names the workloads to run, by commas.
"""

import os
import statistics
import subprocess
import sys
import time
import warnings

THREADS = 2


def mlp(nn):
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def cnn(nn):
    return nn.Sequential(nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(),
                         nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10))


def transformer(nn, width, layers, positions, words=1000, rank=None):
    import torch
    from torch.nn import functional as F

    def linear(i, o):
        return nn.Linear(i, o) if rank is None else Lora(i, o)

    class Lora(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.base = nn.Linear(i, o)
            self.down, self.up = nn.Linear(i, rank, bias=False), nn.Linear(rank, o, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = linear(width, 3 * width), linear(width, width)
            self.inner, self.outer = linear(width, 4 * width), linear(4 * width, width)

        def forward(self, x):
            n, t, _ = x.shape
            q, k, v = (y.view(n, t, width // 64, 64).transpose(1, 2) for y in self.qkv(self.one(x)).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, width)
            x = x + self.out(y)
            return x + self.outer(F.gelu(self.inner(self.two(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(positions, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, ids):
            places = torch.arange(ids.shape[1]).repeat(ids.shape[0], 1)  # Opacus cannot take a view
            return self.head(self.norm(self.blocks(self.words(ids) + self.places(places))))

    model = Model()
    if rank is not None:
        for name, p in model.named_parameters():
            p.requires_grad_(".down." in name or ".up." in name)
    return model


def tokens(torch, n, positions, words=1000):
    return torch.randint(0, words, (n, positions)), torch.randint(0, words, (n, positions))


# name: model, batch, most ordinary ratio flat, per layer, peers (mode, least ratio)
WORKLOADS = {
    "mlp": ("MLP 784-512-512-10, batch 256", mlp,
            lambda torch: (torch.rand(256, 784), torch.randint(0, 10, (256,))), 1.35, 1.35,
            {"hooks": 40, "ghost": 1.8}),
    "cnn": ("CNN 28×28, batch 256", cnn,
            lambda torch: (torch.rand(256, 1, 28, 28), torch.randint(0, 10, (256,))), 1.2, 1.2,
            {"hooks": 1.3, "ghost": 1.3}),
    "small": ("transformer d=256, 4 layers, T=64, batch 16", lambda nn: transformer(nn, 256, 4, 64),
              lambda torch: tokens(torch, 16, 64), 1.3, 1.25, {"hooks": 1.35, "ghost": 1.35}),
    "large": ("transformer d=512, 6 layers, T=256, batch 8", lambda nn: transformer(nn, 512, 6, 256),
              lambda torch: tokens(torch, 8, 256), 1.4, 1.2, {"hooks": 1.2, "ghost": 1.2}),
    "lora": ("LoRA r=8 by hand, d=256, 4 layers, T=64, batch 16", lambda nn: transformer(nn, 256, 4, 64, rank=8),
             lambda torch: tokens(torch, 16, 64), 1.1, 1.1, {"hooks": 1, "ghost": 1}),
}


class Side:
    """mode: "ordinary", "flat", "per_layer", or a mode of Opacus."""

    def __init__(self, workload, mode):
        import torch

        torch.manual_seed(1)
        _, make, data, *_ = WORKLOADS[workload]
        self.model, (self.x, self.y) = make(torch.nn), data(torch)
        self.optimizer = torch.optim.SGD([p for p in self.model.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
        self.criterion = torch.nn.CrossEntropyLoss()
        self.engine = None
        count = len(self.x)
        dataset = torch.utils.data.TensorDataset(self.x, self.y)
        loader = torch.utils.data.DataLoader(dataset, batch_size=count, shuffle=True)
        if mode in ("flat", "per_layer"):
            from discreet.torch import PrivacyEngine

            # As for 100 batches, of which the loader has one: this includes the cost of accounting a Poisson step.
            self.engine = PrivacyEngine(threads=THREADS)
            self.engine.make_private(module=self.model, optimizer=self.optimizer, data_loader=loader,
                                     noise_multiplier=1.1, max_grad_norm=1.0, clipping=mode, declared_size=100 * count)
        elif mode != "ordinary":
            from opacus import PrivacyEngine

            made = PrivacyEngine().make_private(
                module=self.model, optimizer=self.optimizer, criterion=self.criterion, data_loader=loader,
                noise_multiplier=1.1, max_grad_norm=1.0, poisson_sampling=False, grad_sample_mode=mode)
            self.model, self.optimizer = made[0], made[1]
            self.criterion = made[2] if mode == "ghost" else self.criterion
        self.ghost = mode == "ghost"

    def loss(self):
        out = self.model(self.x)
        if out.dim() == 2:
            return self.criterion(out, self.y)
        more = {"shape": out.shape} if self.ghost else {}
        return self.criterion(out.flatten(0, 1), self.y.flatten(), **more)

    def step(self):
        begin = time.perf_counter()
        if self.engine is not None:
            self.engine._hand_out(self.engine._iterator, self.engine.accountant.steps, 0, len(self.x), True)
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()
        return time.perf_counter() - begin


def measure(workload, seconds=30):
    peers = WORKLOADS[workload][5]
    sides = {mode: Side(workload, mode) for mode in ("ordinary", "flat", "per_layer", *peers)}
    took = {mode: [] for mode in sides}
    first = {mode: side.step() for mode, side in sides.items()}
    end = time.perf_counter() + seconds
    turn = 0
    while time.perf_counter() < end or turn < 3:
        for mode, side in sides.items():
            slow = first[mode] > 0.4
            if slow and workload == "mlp" and turn > 2:
                continue
            if not slow:
                side.step()  # warms the caches again
            took[mode] += [side.step() for _ in range(1 if slow else 4)]
        turn += 1
    return {mode: statistics.median(times) for mode, times in took.items()}


MEMORY = """
import ctypes, gc, re, sys, warnings
sys.path.insert(0, sys.argv[3])
import torch, torch_bench
import discreet.torch
warnings.filterwarnings("ignore")
torch.set_num_threads(torch_bench.THREADS)

def kib(key):
    return int(re.search(key + r":\\s*(\\d+)", open("/proc/self/status").read())[1])

torch.randn(300, 300) @ torch.randn(300, 300)  # what the library itself needs
before = kib("VmRSS")
side = torch_bench.Side(sys.argv[1], sys.argv[2])
gc.collect()
ctypes.CDLL("libc.so.6").malloc_trim(0)  # what only make_private needed
open("/proc/self/clear_refs", "w").write("5")  # the peak begins here
for _ in range(3):
    side.step()
print((kib("VmHWM") - before) * 1024)
"""


def memory(workload, mode):
    """Bytes: the most that a process had resident during three steps, less what it had before the model was made."""
    here = os.path.dirname(os.path.abspath(__file__))
    out = subprocess.run([sys.executable, "-c", MEMORY, workload, mode, here], capture_output=True, text=True, check=True,
                         env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    return int(out.stdout)


def run():
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(THREADS)
    rows = []
    for name in os.environ.get("TORCH_BENCH", ",".join(WORKLOADS)).split(","):
        work, _, _, flat, per_layer, peers = WORKLOADS[name]
        took = measure(name)
        rows += [{"work": f"{work}, {mode}", "peer": "ordinary step", "ours": took[mode], "theirs": took["ordinary"],
                  "at_least": 1 / most} for mode, most in (("flat", flat), ("per_layer", per_layer))]
        rows += [{"work": f"{work}, flat", "peer": f"Opacus {mode}", "ours": took["flat"], "theirs": took[mode],
                  "at_least": least} for mode, least in peers.items()]
        if name in ("small", "large"):
            # Bytes in the place of seconds: the ratio is what counts.
            held = {mode: memory(name, mode) for mode in ("ordinary", "flat", "per_layer")}
            rows += [{"work": f"{work}, {mode}, peak memory", "peer": "ordinary step", "ours": held[mode],
                      "theirs": held["ordinary"], "at_least": 1 / most}
                     for mode, most in (("flat", 1.7), ("per_layer", 1.3))]
    return rows
