"""Private training as a library: a configuration in, a run directory and its claim out."""

import tempfile

import discreet

CONFIG = """
data: {format: digits} # the handwritten digits that come with the library
model: {kind: softmax}
optimizer: {rate: 4}
security:
  differential_privacy:
    target_epsilon: 4
    target_steps: 40
    declared_size: 1437
    effective_batch_size: 128
    noise_multiplier: 1.5
    clipping: {norm: 1, ghost: true}
"""

with tempfile.TemporaryDirectory() as folder:
    run = discreet.train(CONFIG, f"{folder}/run", threads=2)
    print(run.ended, "after", run.steps, "steps")
    print(f"epsilon <= {run.epsilon.upper:.4f} at delta {run.delta:g}, {run.adjacency}")
    print("more than 7 of 10 held-out digits are right:", "yes" if run.accuracy > 0.7 else "no")
    for name, values in run.model.items():
        print(f"{name}:", *values.shape)
