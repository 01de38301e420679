"""Clipping the gradients of your own training loop: logistic regression with four weights."""

import numpy as np

import discreet
from discreet.random import Generator

CLIP, SIGMA, RATE = 0.5, 1.0, 2.0
noise = Generator.insecure(7, stream="noise")  # a private run: Generator.secure()

i = np.arange(8)
x = np.stack([0.5 * (i % 3), 1 - 0.25 * (i % 5), i / 8], axis=1)
label = 1.0 - i % 2

weight, bias = np.zeros(3), np.zeros(())
for step in range(3):
    # The gradient of every record's loss, record by record.
    slope = 1 / (1 + np.exp(-(bias + x @ weight))) - label
    gradients = {"weight": (slope[:, None] * x).astype(np.float32),
                 "bias": slope.astype(np.float32)}
    # Every record's gradient is clipped to norm 0.5; the sum gets noise and is divided by the declared batch size.
    clipped = discreet.clip(gradients, CLIP)
    for tensor, total in enumerate(clipped.sum.values()):
        noise.add_gaussian(total, SIGMA * CLIP, step=step, tensor=tensor)
    weight -= RATE / 8 * clipped.sum["weight"]
    bias -= RATE / 8 * clipped.sum["bias"]
    print(f"step {step}: norm of record 0 {clipped.norms[0, 0]:.6f}, scaled by "
          f"{clipped.scales[0, 0]:.6f}; weights {' '.join(f'{w:.6f}' for w in weight)}, bias {bias:.6f}")
