#!/usr/bin/env python3
"""Writes epsilon.json: eps(delta) of composed events to 40 digits, and checks it.

    python3 -m venv build/venv && build/venv/bin/pip install python-flint numpy
    build/venv/bin/python tests/golden/accounting/generate.py             # everything, an hour or two
    build/venv/bin/python tests/golden/accounting/generate.py --check 10  # 10 random entries again

The formula, the method and its limits are described in oracle.py.  Inputs are exact binary64
numbers: a decimal in the file stands for the binary64 nearest to it.  An entry is

    events     rate (1 = full batch), sigma (noise multiplier), count
    explicits  epsilon, delta, count
    remove     eps with P against Q, 42 digits as they stand; "0" if delta(0) <= delta
    add        eps with Q against P
    method     closed form (one step, or full batches only: bisection), or contour
    agree      the relative difference, as a power of ten, from a second evaluation (the worse of
               the two directions): along a contour that shares no abscissa, hyperbola or step with
               the first, nor any path but the real line; of a single sampled step, quadrature of its densities.  At most -40,
               else the setting is dropped and named.  -99: no difference, as between two zeros.

Both directions' values are roots: delta_direction(eps) = delta.  `--check` evaluates the second time
again.  Evaluation is deterministic; a setting slower than the limit is dropped and named.  A run
continues the file it finds, so that what is missing can be added later.
"""

import argparse
import json
import math
import pathlib
import random
import signal
import sys
import time

import oracle
from flint import arb, ctx

HERE = pathlib.Path(__file__).resolve().parent
DIGITS = 40  # asked of the agreement of two evaluations; two more are stored


def one(q, sigma, count, delta):
    return ([(q, sigma, count)], [], delta)


def settings():
    """The list of (events, explicits, delta)."""
    out = []
    # The tables of the accountant's references: published values, five settings, the hard case
    # where another accountant's pessimistic value is below the truth.
    for row in [(.01, 1., 1000, 1e-5), (.01, .8, 10 ** 4, 1e-5), (256 / 60000, 1.1, 14040, 1e-5),
                (.001, .6, 10 ** 5, 1e-6), (.05, 2., 5000, 1e-6), (.01, 1., 1000, 1e-15),
                (.3, 10., 2000, 1e-9), (.001, 2., 100, 1e-5), (.001, 1., 10 ** 6, 1e-8),
                (.1, 1., 20, 1e-5), (.001, .8, 1000, 1e-6), (.001, .6, 100, 1e-6),
                (256 / 60000, .967979, 14040, 1e-5), (.04, 1.5, 2250, 1e-5), (.04, 1.5, 2249, 1e-5),
                (.05, 1.5, 100, 1e-6), (.05, 1.5, 1000, 1e-6), (.05, 3., 20000, 1e-6),
                (.2, .8, 100, 1e-6), (.001, .8, 20000, 1e-6), (.001, 2., 50000, 1e-6),
                (.01, .7, 120, 1e-5), (.1, 3., 512, 1e-6), (.1, 9.66175728, 512, 1e-6),
                (.2, .5, 3, .1559328), (1., 1., 1, .1269367375), (.04, 1.34589833, 2250, 1e-5),
                (.001, .6, 10 ** 4, 1e-5), (.01, .25, 1, 1e-5), (.01, 2.5, 50, 1e-5)]:
        out.append(one(*row))
    # Few steps.
    for count in (1, 2, 3, 5, 8, 10, 20):
        for q, sigma, delta in ((.1, 1., 1e-3), (.01, .7, 1e-6), (.3, 3., 1e-9), (.5, .5, 1e-4),
                                (.02, 5., 1e-4), (.9, 2., 1e-7), (.003, 1.5, 1e-5)):
            out.append(one(q, sigma, count, delta))
    # Large sigma, q near and at 1, tiny delta.
    for count in (1, 10, 1000, 10 ** 5):
        for delta in (1e-2, 1e-5, 1e-12, 1e-30):
            out.append(one(1., math.sqrt(count), count, delta))
            out.append(one(.99, 1.5 * math.sqrt(count), count, delta))
    for sigma in (20., 50., 100.):
        for q, count, delta in ((.01, 10 ** 6, 1e-6), (.2, 10 ** 5, 1e-10), (.5, 1000, 1e-3),
                                (.7, 300, 1e-20)):
            out.append(one(q, sigma, count, delta))
    for delta in (1e-2, 1e-3, 1e-7, 1e-10, 1e-20, 1e-25, 1e-30):
        out.append(one(.01, 1.3, 2000, delta))
        out.append(one(.1, 4., 500, delta))
        out.append(one(.001, .9, 30000, delta))
    # Many steps.
    for q, sigma, count, delta in ((1e-4, .8, 10 ** 7, 1e-8), (1e-3, 4., 10 ** 7, 1e-6),
                                   (1e-5, .6, 10 ** 7, 1e-7), (1e-2, 40., 10 ** 7, 1e-5),
                                   (1e-6, .5, 10 ** 7, 1e-6), (1e-7, .4, 10 ** 7, 1e-7),
                                   (3e-4, 1., 3 * 10 ** 6, 1e-12), (.1, 100., 10 ** 7, 1e-9)):
        out.append(one(q, sigma, count, delta))
    # Small rates, few expected participations, small sigma.
    for q, sigma, count, delta in ((1e-4, 1., 1000, 1e-6), (1e-5, .7, 1000, 1e-8),
                                   (1e-6, .5, 10 ** 5, 1e-8), (1e-7, 1., 10 ** 6, 1e-9),
                                   (1e-3, .5, 300, 1e-5), (1e-2, .3, 10, 1e-4), (1e-3, .3, 100, 1e-4),
                                   (1e-2, .4, 50, 1e-3), (.1, .3, 5, 1e-2), (1e-3, 5., 500, 1e-7),
                                   (1e-4, 3., 5000, 1e-9), (1e-3, 1., 10, 1e-6)):
        out.append(one(q, sigma, count, delta))
    # Zero and nearly zero: delta at and around delta(0).
    for q, sigma, count in ((.01, 1., 1), (.01, 5., 100), (.3, 30., 4), (1., 50., 1), (.001, 1., 50)):
        curve = oracle.Curve(*expand([(q, sigma, count)], []), "remove", oracle.FIRST.rough())
        top = float(curve.delta(0.0))
        for factor in (1.01, 1 - 1e-4, .99, .8):
            out.append(one(q, sigma, count, float(f"{top * factor:.4g}")))
    # One step, full batches, full batches with explicit events: closed forms.
    for q in (1e-7, 1e-4, .003, .1, .9):
        for sigma, deltas in ((.3, (1e-2, 1e-9)), (1., (1e-8, 1e-30)), (4., (1e-5, 1e-12))):
            out += [one(q, sigma, 1, delta) for delta in deltas]
    for sigma, count, delta in ((.3, 1, 1e-30), (.5, 7, 1e-6), (3., 40, 1e-2), (100., 10 ** 7, 1e-8),
                                (100., 1, 1e-5), (100., 1, 3e-3), (20., 3, 1e-20), (8., 500, 1e-15)):
        out.append(one(1., sigma, count, delta))
    for sigma, count, e0, d0, n, delta in (
            (2., 3, .1, 1e-8, 2, 1e-5), (5., 10, .5, 0., 4, 1e-6), (1., 1, 1., 1e-6, 1, 1e-5),
            (30., 2, .01, 1e-12, 6, 1e-9), (10., 100, .2, 1e-7, 3, 1e-6), (4., 1, 2., 1e-20, 2, 1e-15)):
        out.append(([(1., sigma, count)], [(e0, d0, n)], delta))
    # Random draws.
    draw = random.Random(20240229)
    for _ in range(110):
        q = float(f"{10 ** draw.uniform(-3.5, -.1):.3g}")
        count = int(float(f"{10 ** draw.uniform(.7, 6):.2g}"))
        sigma = float(f"{10 ** draw.uniform(-.3, 1.2):.3g}")
        # keep eps below about 60
        sigma = max(sigma, float(f"{.25 * q * math.sqrt(count):.3g}"), .45)
        out.append(one(q, sigma, count, float(f"{10 ** draw.uniform(-14, -2):.2g}")))
    # Mixtures; half with full batches, half with explicit events.
    for i in range(56):
        n = 2 + i % 5
        events = []
        for _ in range(n):
            q = float(f"{10 ** draw.uniform(-3, -.3):.2g}")
            count = int(float(f"{10 ** draw.uniform(1, 4):.2g}"))
            sigma = max(float(f"{10 ** draw.uniform(-.1, .8):.2g}"),
                        float(f"{.5 * q * math.sqrt(count):.2g}"))
            events.append((q, sigma, count))
        delta = float(f"{10 ** draw.uniform(-10, -3):.2g}")
        if i % 2:
            events.append((1., float(f"{draw.uniform(3, 30):.3g}"), 1 + i % 3))
        explicits = []
        if i % 4 >= 2:
            explicits.append((float(f"{draw.uniform(.01, .5):.2g}"), float(f"{delta / 37:.2g}"),
                              1 + i % 4))
        out.append((events, explicits, delta))
    return out + thin_regions()


def thin_regions():
    """Where few of the above lie."""
    draw, out = random.Random(20240301), []

    def log_uniform(low, high, digits=2):
        return float(f"{math.exp(draw.uniform(math.log(low), math.log(high))):.{digits}g}")

    # Two to four distinct sampled events, every other time with an explicit one or two.
    for i in range(48):
        events = []
        for _ in range(2 + i % 3):
            q, count = log_uniform(1e-3, .7), int(log_uniform(2, 5000))
            events.append((q, max(log_uniform(.6, 8.), float(f"{.5 * q * math.sqrt(count):.2g}")), count))
        delta = log_uniform(1e-12, 1e-3)
        explicits = [(log_uniform(.01, 2.), float(f"{delta / draw.choice((3, 20, 500)):.2g}"), 1 + i % 5)
                     for _ in range((0, 1, 0, 2)[i % 4])]
        if sum(d * n for _, d, n in explicits) < delta:  # else epsilon is infinite
            out.append((events, explicits, delta))
    # Less than one expected participation.
    for _ in range(30):
        q = log_uniform(1e-6, 3e-2)
        count = max(2, int(log_uniform(.02, 1.) / q))
        out.append(one(q, log_uniform(.45, 4.), count, log_uniform(1e-3, .3) * min(1, q * count) * 1e-3))
    # Two to twenty steps, of one kind or of two.
    for i in range(40):
        q, sigma = log_uniform(3e-3, .95), log_uniform(.45, 12.)
        events = [(q, sigma, draw.randint(2, 20))]
        if i % 4 == 3:
            events.append((log_uniform(3e-3, .95), log_uniform(.6, 6.), draw.randint(1, 5)))
        out.append((events, [], log_uniform(1e-12, 1e-2)))
    return out


def expand(events, explicits):
    return ([{"rate": q, "sigma": s, "count": n} for q, s, n in events],
            [{"epsilon": e, "delta": d, "count": n} for e, d, n in explicits])


class TooSlow(Exception):
    pass


def limited(seconds, work):
    def alarm(*_):
        raise TooSlow("too slow")
    signal.signal(signal.SIGVTALRM, alarm)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)  # processor time: the same on a busy machine
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def text(x, digits=DIGITS + 2):
    """A decimal string with `digits` significant digits."""
    return "0" if x == 0 else x.mid().str(digits, radius=False)


def agreement(stored, y):
    """log10 of the relative difference of two values, the first a decimal."""
    ctx.prec = 256
    x = arb(stored)
    if x == y:
        return -99
    if x == 0 or y == 0:
        return 0
    return math.ceil(math.log10(max(1e-99, abs(float(((x - y) / x).mid())))))


def line(entry):
    return json.dumps(entry, separators=(", ", ": "))


def write(entries, path):
    path.write_text("[\n" + ",\n".join(line(e) for e in entries) + "\n]\n")


def first_value(entry, direction, settle):
    setting = entry["events"], entry["explicits"], entry["delta"], direction
    if entry["method"] == "closed form":
        return oracle.closed_epsilon(*setting)
    return oracle.evaluate(*setting, oracle.FIRST.changed(settle=settle))


def second_value(entry, direction, settle):
    start = float(entry[direction])
    if entry["method"] == "closed form" and entry["events"][0]["rate"] < 1:
        return oracle.quadrature_epsilon(entry["events"], entry["delta"], direction, start)
    return oracle.evaluate(entry["events"], entry["explicits"], entry["delta"], direction,
                           oracle.SECOND.changed(settle=settle), start)


def worst_agreement(entry, seconds, settle=1.0):
    return max(agreement(entry[d], limited(seconds, lambda: second_value(entry, d, settle)))
               for d in ("remove", "add"))


FAILURES = (ArithmeticError, TooSlow, ValueError, ZeroDivisionError, AttributeError)


def generate(path, seconds, until):
    """Both evaluations of every setting; resumes from what the file already holds."""
    entries = json.loads(path.read_text()) if path.exists() else []
    key = lambda e: json.dumps([e["events"], e["explicits"], e["delta"]])
    done = {key(e) for e in entries}
    todo = settings()
    # The references, then easy ones first.
    cost = lambda i: (not oracle.has_closed_form(*expand(*todo[i][:2]))) * sum(
        1 + 2 / (q * n * s) + 1 / s for q, s, n in todo[i][0] if q < 1)
    for i in sorted(range(len(todo)), key=lambda i: (i >= 30, cost(i))):
        if time.time() > until:
            break
        events, explicits = expand(*todo[i][:2])
        entry = {"events": events, "explicits": explicits, "delta": todo[i][2], "remove": "", "add": ""}
        if key(entry) in done:
            continue
        done.add(key(entry))
        start = time.process_time()
        try:
            closed = oracle.has_closed_form(events, explicits)
            entry["method"] = "closed form" if closed else "contour"
            for settle in (0.62, 1.0):  # the quick way, and the careful one where it does not do
                for d in ("remove", "add"):
                    entry[d] = text(limited(seconds, lambda: first_value(entry, d, settle)))
                entry["agree"] = worst_agreement(entry, seconds, settle)
                if entry["agree"] <= -DIGITS:
                    break
            else:
                raise ArithmeticError("the second evaluation differs")
        except FAILURES as error:
            print(f"dropped {time.process_time() - start:.1f}s", line(entry), repr(error), flush=True)
            continue
        entries.append(entry)
        write(entries, path)
        print(f"{len(entries)} {time.process_time() - start:.1f}s", line(entry), flush=True)


def check(path, seconds, count):
    """The second evaluation of some random entries again; the number that differ."""
    entries = json.loads(path.read_text())
    failed = 0
    for e in random.sample(entries, min(count, len(entries))):
        worst = worst_agreement(e, seconds)
        print(f"10^{worst:d}", line(e), flush=True)
        failed += worst > -DIGITS
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", type=int, metavar="N", help="re-evaluate N random entries")
    parser.add_argument("--limit", type=int, default=600, help="processor seconds per value")
    parser.add_argument("--total", type=float, default=1e9, help="seconds for the whole run")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "epsilon.json")
    a = parser.parse_args()
    if a.check is not None:
        sys.exit(1 if check(a.out, a.limit, a.check) else 0)
    generate(a.out, a.limit, time.time() + a.total)


if __name__ == "__main__":
    main()
