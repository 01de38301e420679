"""A private step in your own training loop: clip, noise, account; read the metrics; save, restore."""

import numpy as np

import discreet

CONFIG = """
security:
  differential_privacy:
    target_epsilon: 1
    declared_size: 1000
    effective_batch_size: 8
    noise_multiplier: 0.8
    clipping: {norm: 0.5}
    secure: false # so that this page repeats; a private run leaves it out and has a secret key
    seed: 7
"""


def gradients(step):
    """The gradients of 8 records in the three weights and the bias of a model."""
    i = np.arange(8)
    slope = np.float32(np.where(i % 2 == 0, -1, 1)) / np.float32(step + 2)
    parts = np.stack([i % 3, i % 5, i], axis=1).astype(np.float32)
    return {"weight": slope[:, None] * parts / 4, "bias": slope}


def make():
    return discreet.Mechanism(CONFIG, {"weight": (3,), "bias": ()})


def step(mechanism):
    result = mechanism.apply(gradients(mechanism.t))
    weight = " ".join(f"{w:.6f}" for w in result.gradients["weight"])
    print(f"step {result.t}: gradient {weight}, bias {result.gradients['bias']:.6f}")
    print(f"  epsilon <= {result.epsilon.after.upper:.6f} of {result.epsilon.target:g}; "
          f"clipped {result.metrics['clip_fraction']:.3f} of the records, "
          f"norms up to {result.metrics['norm_max']:.6f}")


mechanism = make()
step(mechanism)
step(mechanism)
saved = mechanism.save()
step(mechanism)

restored = make()
restored.restore(saved)
step(restored)  # the same bits
print("same state:", "yes" if restored.save() == mechanism.save() else "no")

try:
    while True:
        restored.apply(gradients(restored.t))
except discreet.Error as error:
    print(error.code, "after", restored.t, "steps")
