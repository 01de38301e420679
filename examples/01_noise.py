"""Noise that anyone with the key can draw again, whole or in pieces."""

import numpy as np

from discreet.random import Generator

# A seed makes this example repeatable. A private run takes a fresh key: Generator.secure().
noise = Generator.insecure(7, stream="noise")

# Noise of standard deviation 0.5 onto the gradient of tensor 2 at step 10, in place.
gradient = np.arange(1, 9, dtype=np.float32)
noise.add_gaussian(gradient, 0.5, step=10, tensor=2)
print("noised gradient:", *(f"{x:.6f}" for x in gradient))

# A rank that holds coordinates 3 … 5 draws the same values for them.
shard = np.array([4, 5, 6], dtype=np.float32)
noise.add_gaussian(shard, 0.5, step=10, tensor=2, coordinate=3)
print("its coordinates 3 … 5:", *(f"{x:.6f}" for x in shard))

# Integer noise, sampled exactly: discrete Gaussian of variance 100.
integers = np.empty(8, dtype=np.int64)
noise.fill_discrete_gaussian(integers, (100, 1), step=10, tensor=3)
print("discrete Gaussian:", *integers)

# Who takes part in step 10: each of 1000 records with probability 0.01, from its own stream.
coins = Generator.insecure(7, stream="sampling")
print("Poisson subset:", *coins.poisson_subset(1000, 0.01, step=10))
