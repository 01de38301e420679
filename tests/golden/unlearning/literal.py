#!/usr/bin/env python3
"""Writes literal.json: the specification's formulas of N*, capacity and noise in sixty digits.

Independent of the library: mpmath, a linear-in-log search for m, no code shared. N* is given twice: as
the binary64 operations of the formula give it, and exactly on the same inputs; they differ where rounding
decides the ceiling. Certified capacities (zCDP, dimension 54) stand beside, from their own formula:
    rho = (sqrt(ln(1/delta) + eps) - sqrt(ln(1/delta)))^2,  t0 = max(1, ceil(G^2/(8 lambda))),
    R_learn = lambda t0 D^2/2 + ((G + lambda D)^2/(2 lambda)) ln(1 + T/t0),  gamma' = gamma - R_learn/T,
    m_record = floor(4 lambda rho gamma' T s/(d G^2)),  m_set = floor((2/G) sqrt(lambda rho gamma' T s/d)).
"""

import json
import math
import pathlib
import random

from mpmath import ceil, floor, log, mp, mpf, sqrt

mp.dps = 60
HERE = pathlib.Path(__file__).resolve().parent
BASE = dict(G=1.0, D=1.0, c=1.0, C=1.0, **{"lambda": 0.1}, eps=1.0, delta=1e-5, delta_B=0.05, T=100000,
            gamma=0.05)
LIMIT = 2**63 - 1
DIMENSION = 54

ROWS = [
    {}, {"gamma": 0.005}, {"gamma": 0.004}, {"gamma": 0.003}, {"gamma": 1e-9}, {"gamma": 1e-10},
    {"gamma": 1e6}, {"lambda": 10.0, "T": 10**6, "gamma": 1.0},
    {"G": 2.0, "D": 0.5, "c": 0.5, "C": 8.0, "gamma": 0.1}, {"eps": 0.1, "delta": 1e-6}, {"eps": 8.0},
    {"lambda": 1e-12, "gamma": 10.0}, {"T": 1, "lambda": 10.0, "gamma": 10.0}, {"D": 0.0},
    {"G": 28.3, "D": 0.126, "T": 10**4, "gamma": 0.48},
    {"G": 0.9, "lambda": 1.0, "T": 10**4, "gamma": 0.3}, {"delta_B": 0.5, "gamma": 2.0},
]


def evaluate(inputs):
    p = {k: mpf(v) for k, v in inputs.items()}
    lam, T = p["lambda"], p["T"]
    insertion = p["G"] * p["D"] * sqrt(p["c"] * p["C"] * T)

    def deletion(m):
        if m == 0:
            return mpf(0)
        return m * p["G"] / lam * sqrt(2 * log(mpf("1.25") * m / p["delta"]) / p["eps"]
                                       * 2 * log(1 / p["delta_B"]))

    def fits(m):
        return (insertion + deletion(m)) / T <= p["gamma"]

    m, step = 0, 1
    while step <= inputs["T"]:
        step *= 2
    while step:
        if m + step <= inputs["T"] and fits(m + step):
            m += step
        step //= 2
    k = max(1, m)
    root = inputs["G"] * inputs["D"] * math.sqrt(inputs["c"] * inputs["C"]) / inputs["gamma"]
    exact = ceil((p["G"] * p["D"] * sqrt(p["c"] * p["C"]) / p["gamma"]) ** 2)

    rho = (sqrt(log(1 / p["delta"]) + p["eps"]) - sqrt(log(1 / p["delta"]))) ** 2
    t0 = max(1, int(ceil(p["G"] ** 2 / 4 / (2 * lam))))
    s = T / 10 + t0
    learn = lam * t0 * p["D"] ** 2 / 2 + (p["G"] + lam * p["D"]) ** 2 / (2 * lam) * log(1 + T / t0)
    left = p["gamma"] - learn / T
    record = subset = 0
    if left > 0:
        record = int(floor(4 * lam * rho * left * T * s / (DIMENSION * p["G"] ** 2)))
        subset = int(floor(2 / p["G"] * sqrt(lam * rho * left * T * s / DIMENSION)))
    return {
        "inputs": inputs,
        "N_star": str(min(LIMIT, max(1, math.ceil(root**2)))),
        "N_star_exact": str(min(LIMIT, max(1, int(exact)))),
        "R_ins": float(insertion), "m": m, "R_del": float(deletion(k)), "eps_step": float(p["eps"] / k),
        "delta_step": float(p["delta"] / k),
        "sigma_step": float(p["G"] / lam * sqrt(2 * log(mpf("1.25") * k / p["delta"])) * k / p["eps"]),
        "m_record": min(record, inputs["T"]), "m_set": min(subset, inputs["T"]),
    }


def main():
    rows = [evaluate(BASE | change) for change in ROWS]
    draw = random.Random(20260218)
    while len(rows) < len(ROWS) + 400:
        def spread(low, high):
            return 10 ** draw.uniform(low, high)
        rows.append(evaluate(dict(
            G=spread(-2, 2), D=spread(-2, 1), c=spread(-1, 1), C=spread(-1, 1),
            **{"lambda": spread(-3, 2)}, eps=spread(-2, 1.5), delta=spread(-12, -2),
            delta_B=draw.uniform(0.01, 0.9), T=int(spread(1, 6)), gamma=spread(-3, 2))))
    (HERE / "literal.json").write_text(
        "[\n" + ",\n".join(json.dumps(row, sort_keys=True) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
