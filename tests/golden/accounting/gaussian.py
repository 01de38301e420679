"""Prints the rows of gaussian.txt: delta of the Gaussian pair at 60 digits by mpmath.

    python tests/golden/accounting/gaussian.py > tests/golden/accounting/gaussian.txt
"""
from mpmath import exp, mp, mpf, ncdf, nstr

mp.dps = 60

for mu in (1e-4, 0.01, 0.3, 1.0, 4.0, 30.0):
    for ratio in (0.0, 0.5, 2.0, 6.0, 20.0):
        epsilon = ratio * mu + mu * mu / 2
        m, e = mpf(mu), mpf(epsilon)
        delta = ncdf(m / 2 - e / m) - exp(e) * ncdf(-m / 2 - e / m)
        print(repr(mu), repr(epsilon), nstr(delta, 20))
