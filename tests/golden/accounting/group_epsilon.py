#!/usr/bin/env python3
"""Writes group_epsilon.json: epsilon of groups of records, by two references that share nothing with us.

    python3 -m venv build/bench && build/bench/bin/pip install dp-accounting
    build/bench/bin/python tests/golden/accounting/group_epsilon.py SEED   # continues the file it finds

k records with coins of rate q and noise sigma: a step is P = sum_j Bin(k, q)(j) N(j, sigma^2) against
Q = N(0, sigma^2).  With M = dP/dQ and K(z) the sum over all steps of log E_Q M^(1+z) (remove) or of
log E_Q M^(-z) (add),

    delta(eps) = 1/(2 pi i) int_{c - i inf}^{c + i inf} exp(K(z) - z eps) / (z (z + 1)) dz,   c > 0.

Both integrals by the trapezoidal rule, which converges exponentially for them: in x because M is a
polynomial in exp(x/sigma^2) with real negative roots, hence without zeros for |Im x| < pi sigma^2; in
Im z because the poles are c away.  No loss is put on a grid.  One step: the threshold x of the loss by
bisection, delta from normal tails.  An entry has

    steps      [rate, sigma, count], ...
    epsilon    the worse direction; `agree`: the relative difference from twice the steps in x and Im z
    dp_accounting   pessimistic connect-the-dots estimate on a grid of `interval`, or null
"""

import json
import math
import pathlib
import random
import sys

import numpy as np

FILE = pathlib.Path(__file__).resolve().parent / "group_epsilon.json"
COUNT = 220
COMPARED = 24  # with dp-accounting, which takes seconds each


def log_binomial(k, q):
    j = np.arange(k + 1.0)
    lg = np.array([math.lgamma(v + 1) for v in j])
    return j, lg[-1] - lg - lg[::-1] + j * math.log(q) + (k - j) * math.log1p(-q)


def log_sum(a, axis):
    top = a.max(axis=axis, keepdims=True)
    return np.log(np.exp(a - top).sum(axis=axis)) + np.squeeze(top, axis)


def log_ratio(x, k, q, s):
    j, lw = log_binomial(k, q)
    return log_sum(lw[:, None] + j[:, None] * (2 * x[None, :] - j[:, None]) / (2 * s * s), 0)


class Step:
    """log E_Q M^power for complex powers near a real one."""

    def __init__(self, q, s, k, power, most, fine):
        dx = min(s / 6, 0.3 * s * s, 2 * math.pi * s * s / (k * (most + 30))) / fine
        x = np.arange(-14 * s, k * (abs(power) + 1) + 14 * s, s / 3)
        f = -x * x / (2 * s * s) + power * log_ratio(x, k, q, s)
        x = x[f > f.max() - 60]
        self.x = np.arange(x[0] - s, x[-1] + s, dx)
        self.m = log_ratio(self.x, k, q, s)
        self.base = -self.x ** 2 / (2 * s * s) + math.log(dx / (s * math.sqrt(2 * math.pi)))

    def real(self, power):
        return float(log_sum((self.base + power * self.m)[None, :], 1)[0])

    def __call__(self, power, u):
        """log of the moment at power + i u, relative to that at power; u an array."""
        w = np.exp(self.base + power * self.m - self.real(power))
        keep = w > 1e-24
        w, m = w[keep], self.m[keep]
        out = np.empty(len(u), complex)
        for a in range(0, len(u), 64):
            out[a:a + 64] = np.exp(1j * np.outer(u[a:a + 64], m)) @ w
        return out


def direction_epsilon(steps, k, delta, remove, fine):
    sign = (lambda z: 1 + z) if remove else (lambda z: -z)
    rough = dict.fromkeys(np.exp(np.linspace(math.log(0.3), math.log(40), 14)), 0.0)
    for c in rough:
        for q, s, n in steps:
            x = np.arange(-12 * s, k * (c + 2) + 12 * s, min(s / 2, s * s))
            f = -x * x / (2 * s * s) + sign(c) * log_ratio(x, k, q, s)
            rough[c] += n * (float(log_sum(f[None, :], 1)[0]) + math.log((x[1] - x[0]) / (s * math.sqrt(2 * math.pi))))
    kernel = lambda c: c * math.log(c / (1 + c)) - math.log(1 + c)
    c, total = min(rough.items(), key=lambda e: (e[1] + kernel(e[0]) - math.log(delta)) / e[0])
    guess = (total + kernel(c) - math.log(delta)) / c
    # How far the tilted moments reach, from a coarse look.
    most = 8.0
    while most < 1000:
        u = np.array([most * f for f in (.5, .65, .8, .9, 1)])
        size = sum(n * np.log(np.abs(Step(q, s, k, sign(c), most, .7)(sign(c), u)) + 1e-300) for q, s, n in steps)
        if size.max() < -34:
            break
        most *= 1.8
    else:
        return None
    laws = [(Step(q, s, k, sign(c), most, fine), n) for q, s, n in steps]
    total = sum(n * law.real(sign(c)) for law, n in laws)
    spread = math.sqrt(sum(n * max(1e-12, -2 * math.log(abs(law(sign(c), np.array([1e-3]))[0]))) * 1e6 for law, n in laws))
    du = min(c / 6, 2 * math.pi / (24 * spread)) / fine
    u = np.arange(0, most, du)
    if len(u) > 3000:
        return None
    value = np.exp(sum(n * np.log(law(sign(c), u if remove else -u)) for law, n in laws))
    z = c + 1j * u
    weight = np.where(u == 0, .5, 1.0) * du / math.pi

    def excess(eps):
        return float(np.sum(weight * (value * np.exp(-1j * u * eps) / (z * (z + 1))).real)) * math.exp(total - c * eps) - delta

    low, high = max(0.0, guess * .2), guess + 1e-9
    if excess(low) <= 0:
        return None
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def one_step_epsilon(q, s, k, delta, remove):
    j, lw = log_binomial(k, q)
    tail = lambda z: .5 * math.erfc(z / math.sqrt(2))

    def excess(eps):
        low, high = -80.0 * s, k + 80.0 * s
        for _ in range(80):
            x = (low + high) / 2
            low, high = (low, x) if log_ratio(np.array([x]), k, q, s)[0] > (eps if remove else -eps) else (x, high)
        if remove:
            return sum(math.exp(w) * tail((x - v) / s) for v, w in zip(j, lw)) - math.exp(eps) * tail(x / s) - delta
        return tail(-x / s) - math.exp(eps) * sum(math.exp(w) * tail((v - x) / s) for v, w in zip(j, lw)) - delta

    if excess(0) <= 0:
        return 0.0
    low, high = 0.0, 700.0 if remove else -k * math.log1p(-q)
    for _ in range(60):
        eps = (low + high) / 2
        low, high = (eps, high) if excess(eps) > 0 else (low, eps)
    return eps


def dp_accounting_epsilon(steps, k, delta, interval):
    from dp_accounting.pld import privacy_loss_distribution as pld
    whole = None
    for q, s, n in steps:
        j, lw = log_binomial(k, q)
        keep = lw > -300
        one = pld.from_mixture_gaussian_mechanism(
            s, [float(v) for v in j[keep]], [float(v) for v in np.exp(lw[keep]) / np.exp(lw[keep]).sum()],
            value_discretization_interval=interval)
        one = one.self_compose(n)
        whole = one if whole is None else whole.compose(one)
    return float(whole.get_epsilon_for_delta(delta))


def settings(seed):
    rng = random.Random(seed)
    log_uniform = lambda a, b: math.exp(rng.uniform(math.log(a), math.log(b)))
    while True:
        k = rng.choice([2, 2, 3, 3, 4, 4, 5, 6, 8, 10, 16])
        steps = [[float(f"{log_uniform(3e-4, .3):.6g}"), float(f"{log_uniform(.5, 12):.6g}"), int(log_uniform(30, 1500))]
                 for _ in range(rng.choice([1, 1, 1, 2]))]
        if rng.random() < .15:
            steps = [[steps[0][0], steps[0][1], 1]]
        yield steps, k, 10.0 ** -rng.choice([3, 4, 5, 6, 7, 8, 10])


def main():
    entries = json.loads(FILE.read_text()) if FILE.exists() else []
    known = {json.dumps([e["steps"], e["group"], e["delta"]]) for e in entries}
    tried = 0
    for steps, k, delta in settings(int(sys.argv[1])):
        tried += 1
        if len(entries) >= COUNT or tried > 4000:
            break
        if json.dumps([steps, k, delta]) in known:
            continue
        single = len(steps) == 1 and steps[0][2] == 1
        # A guess that keeps epsilon in a useful range, and moments that end.
        mean = math.sqrt(sum(n * (k * q / s) ** 2 * min(math.exp(k / s / s), 1e3) for q, s, n in steps))
        if not single and (not .03 < mean < 25 or sum(n * -math.expm1(k * math.log1p(-q)) for q, s, n in steps) < 80):
            continue
        if single:
            found = [max(one_step_epsilon(*steps[0][:2], k, delta, r) for r in (True, False))]
            agree = 0.0
        else:
            found = []
            for fine in (1.5, 3):
                both = [direction_epsilon(steps, k, delta, r, fine) for r in (True, False)]
                if both[0] is None:
                    break
                found.append(max(b or 0.0 for b in both))
            if len(found) < 2:
                continue
            agree = abs(found[0] - found[1]) / found[1]
        if not .02 < found[-1] < 120 or agree > 1e-7:
            continue
        entries.append({"steps": steps, "group": k, "delta": delta, "epsilon": found[-1], "agree": agree,
                        "dp_accounting": None, "interval": None})
        if len(entries) % 10 == 0:
            write(entries)
            print(len(entries), "of", tried, flush=True)
    write(entries)
    for entry in entries[:: len(entries) // COMPARED]:
        if entry["dp_accounting"] is None:
            interval = 1e-3
            entry["dp_accounting"] = dp_accounting_epsilon(entry["steps"], entry["group"], entry["delta"], interval)
            entry["interval"] = interval
            write(entries)
            print(entry["epsilon"], entry["dp_accounting"] / entry["epsilon"] - 1, flush=True)


def write(entries):
    FILE.write_text("[\n" + ",\n".join(json.dumps(e) for e in entries) + "\n]\n")


if __name__ == "__main__":
    main()
