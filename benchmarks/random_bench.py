"""Random numbers against PyTorch and NumPy, two threads, in one run.

Ours and the peer's take turns of the same length and each keeps its best time, so that a busy
machine treats both alike.
"""

import time

import numpy as np
import torch

from discreet.random import Generator

SIZE = 1 << 20  # a few milliseconds a call: short enough to escape other work now and then
THREADS = 2
TURNS = 25
SECONDS_PER_TURN = 0.04


def compete(ours, theirs):
    """The best seconds of each."""
    best = [float("inf")] * 2
    for _ in range(TURNS):
        for i, work in enumerate((ours, theirs)):
            end = time.perf_counter() + SECONDS_PER_TURN
            while (start := time.perf_counter()) < end:
                work()
                best[i] = min(best[i], time.perf_counter() - start)
    return best


def row(work, peer, at_least, ours, theirs):
    seconds = compete(ours, theirs)
    return {"work": work, "peer": peer, "ours": seconds[0], "theirs": seconds[1],
            "at_least": at_least}


def run():
    torch.set_num_threads(THREADS)
    philox = Generator.insecure(1)
    secure = Generator.insecure(1, algorithm="aes128ctr")
    x64, x32 = np.zeros(SIZE), np.zeros(SIZE, np.float32)
    y64, t64, t32 = np.zeros(SIZE), torch.zeros(SIZE, dtype=torch.float64), torch.zeros(SIZE)
    numpy_generator = np.random.Generator(np.random.Philox(1))
    step = iter(range(1 << 24))

    def gaussian(generator, out):
        return lambda: generator.fill_gaussian(out, step=next(step), threads=THREADS)

    def torch_fused():
        t32.add_(0.5 * torch.randn_like(t32))

    millions = f"{SIZE / 1e6:.1f}M"
    return [
        row(f"binary64 Gaussian, {millions}", "torch.randn float64", 8,
            gaussian(philox, x64), lambda: torch.randn(SIZE, dtype=torch.float64, out=t64)),
        row(f"binary64 Gaussian, {millions}", "numpy standard_normal, Philox", 3,
            gaussian(philox, x64), lambda: numpy_generator.standard_normal(out=y64)),
        row(f"binary32 Gaussian (native), {millions}", "torch.randn float32", 4,
            lambda: philox.fill_gaussian_native32(x32, step=next(step), threads=THREADS),
            lambda: torch.randn(SIZE, out=t32)),
        row(f"secure (AES-CTR) binary64 Gaussian, {millions}", "our Philox", 1,
            gaussian(secure, x64), gaussian(philox, y64)),
        row(f"noise onto a binary32 gradient, binary64 arithmetic, {millions}",
            "g += s*torch.randn_like(g)", 2.5,
            lambda: philox.add_gaussian(x32, 0.5, step=next(step), threads=THREADS), torch_fused),
    ]
