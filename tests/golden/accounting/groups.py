#!/usr/bin/env python3
"""Writes groups.json: several groups noised on one shared subsample.

Group g has its own clip bound and noise multiplier sigma_g; one coin decides whether the record is in
the batch.  P = (1-q) N(0, D) + q N((1,..,1), D) against Q = N(0, D), D = diag(sigma_g^2).  The rule under
test: this is one subsampled Gaussian with sigma_eff^-2 = sum of sigma_g^-2.

`one_step` integrates delta(eps) = integral of (p - e^eps q)_+ over the plane without using the rule:
outer trapezoid over the first coordinate, inner integral over the half-line where p > e^eps q in
closed form (erfc).  `composed` gives eps of T such steps by the rule, from oracle.py.  The value of
treating the groups as independent steps is added for contrast; it is not a bound.
"""

import json
import pathlib

import oracle
from flint import arb, ctx

HERE = pathlib.Path(__file__).resolve().parent


def plane(q, s1, s2, eps, h):
    """delta(eps), P against Q, two groups, by quadrature over the plane."""
    log_ratio = (1 + (eps.exp() - 1) / q).log()  # p > e^eps q  <=>  v1 + v2 > log_ratio
    total, k = arb(0), int(-16 * s1 / h)
    while k * h < 16 * s1 + 1:
        x = arb(h) * k
        v1 = (2 * x - 1) / (2 * arb(s1) ** 2)
        y = (log_ratio - v1) * arb(s2) ** 2 + arb(1) / 2  # the inner half-line starts here
        density = lambda at: (-((x - at) / s1) ** 2 / 2).exp() / (s1 * (2 * arb.pi()).sqrt())
        total += density(0) * (1 - q - eps.exp()) * oracle.upper_tail(y / s2)
        total += density(1) * q * oracle.upper_tail((y - 1) / s2)
        k += 1
    return total * h


def main():
    ctx.prec = 250
    one = []
    for q, eps in ((.01, .01), (.01, .5), (.2, .1), (.2, 1.), (.9, 2.)):
        a, b = (plane(arb(q), 2.0, 3.0, arb(eps), h) for h in (0.125, 0.09375))
        assert abs(float((a / b - 1).mid())) < 1e-38, (q, eps, float((a / b - 1).mid()))
        effective = 1 / (arb(1) / 4 + arb(1) / 9).sqrt()
        rule = oracle.one_step_remove(arb(q), effective, arb(eps))
        one.append({"rate": q, "sigmas": [2.0, 3.0], "epsilon": eps,
                    "delta_plane": a.mid().str(35, radius=False),
                    "delta_rule": rule.mid().str(35, radius=False)})
    composed = []
    ctx.prec = 170
    for groups, sigma_eff, q, steps, delta in ((4, 1.0, .01, 1000, 1e-5), (16, .5, .01, 1000, 1e-5)):
        entry = {"groups": groups, "sigma": 2.0, "rate": q, "count": steps, "delta": delta,
                 "sigma_effective": sigma_eff}
        for d in ("remove", "add"):
            eps = oracle.evaluate([{"rate": q, "sigma": sigma_eff, "count": steps}], [], delta, d)
            entry[d] = eps.mid().str(30, radius=False)
        wrong = oracle.evaluate([{"rate": q, "sigma": 2.0, "count": groups * steps}], [], delta, "remove")
        entry["independent_steps_not_a_bound"] = wrong.mid().str(30, radius=False)
        composed.append(entry)
    lines = lambda rows: ",\n".join("  " + json.dumps(r) for r in rows)
    (HERE / "groups.json").write_text(
        '{"one_step": [\n' + lines(one) + '\n],\n"composed": [\n' + lines(composed) + "\n]}\n")


if __name__ == "__main__":
    main()
