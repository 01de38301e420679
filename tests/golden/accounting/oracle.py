"""A slow, independent, 40-digit evaluation of the privacy curve of composed events.

What is computed
----------------
One step is the pair P = (1-q) N(0,s^2) + q N(1,s^2) against Q = N(0,s^2); with
g(x) = dP/dQ = 1-q + q exp((2x-1)/(2 s^2)) and L = sum of log g over all steps,

    remove:  delta(eps) = E_P[(1 - exp(eps - L))_+]          (P against Q)
    add:     delta(eps) = E_Q[(1 - exp(eps + L))_+]          (Q against P)

An explicit (e0, d0) event is infinite loss with probability d0, otherwise randomised response
with loss +e0 or -e0.  Full batch is q = 1.

With G(w) = E_Q[g^w] (an entire function of w), one contour formula serves both directions:

    I(eps, c) = 1/(2 pi i) * integral over Re z = c of  exp(log G(1+z) - z eps) / (z (z+1)) dz
    remove:  delta(eps) = I(eps, c)  for c > 0;      add:  delta(eps) = e^eps I(-eps, c)  for c < -1.

(The second line is the first with P and Q exchanged: the residues at 0 and -1 are exactly the
1 - e^eps + e^eps * delta_remove(-eps) of the duality of the two curves.)

How it is computed
------------------
Nothing here follows the product: neither contour is a straight line, no window, no aliasing
argument, no tilted density.

* z runs on a hyperbola through the saddle that opens to the *right*.  The loss has a lower edge
  (sum of n log(1-q)), so exp(-z eps) G decays there, whatever the number of steps: T = 2 and
  qT = 1e-5 are as easy as T = 1000.  The trapezoid in the hyperbola's parameter converges
  geometrically; its step is halved until the value stands still.
* For each z, G(1+z) is integrated along a path v = s + i*theta(s) in the complex plane of
  v = (2x-1)/(2 s^2), chosen among many so that the largest modulus on it is smallest (a rough
  steepest descent).  Crossing Re zeta = 0, zeta = v + log(q/(1-q)), the path stays between the
  branch points at zeta = +-i pi; to the right log(1+e^zeta) = zeta + log(1+e^-zeta) is analytic, so
  the path may climb.  Trapezoid in s, geometric again.
* Arithmetic is ball arithmetic (python-flint), so rounding is bounded rigorously.  Truncation and
  quadrature are not; they are verified by a second evaluation in which the abscissa, the
  hyperbola, both steps and all paths but the real line are different.  `generate.py` stores how far the two agree.
* A root is accepted when the balls of delta at eps (1 -+ 10^-41) lie on both sides of delta.
"""

import math

import numpy as np
from flint import acb, arb, ctx


class Plan:
    """The free parameters of an evaluation.  Two plans share no abscissa, contour or step,
    and of the paths only the real line."""

    def __init__(self, digits=43, shift=0.0, angles=(58.0, 66.0, 74.0, 81.0, 87.0),
                 scales=(1.5, 5.0, 16.0), path_step=1.0, heights=1.0, slopes=(0.0, 0.4, 0.8),
                 first_step=0.11, settle=0.62):
        self.digits = digits  # relative digits asked of delta
        self.shift = shift  # (abscissa - saddle) / saddle width
        self.angles = angles  # candidate asymptotic angles of the hyperbola, degrees
        self.scales = scales  # candidate sizes of the hyperbola / saddle width
        self.path_step = path_step  # factor on the coarsest step in s
        self.heights = heights  # factor on the heights theta of the candidate paths
        self.slopes = slopes  # slopes of the candidate paths
        self.first_step = first_step  # coarsest step of the hyperbola's parameter
        self.settle = settle  # the part of the digits on which its last two trapezoids agree

    def changed(self, **what):
        return Plan(**{**vars(self), **what})

    def precision(self):
        return 45 + int(3.4 * self.digits)  # in bits

    def rough(self):
        """The same with few digits: locates the root, so that the contour can be put there."""
        return self.changed(digits=14)


GRID = 0.22  # of the hyperbola's parameter, where its shape is judged
FIRST = Plan()
SECOND = Plan(shift=0.4, angles=(62.0, 70.0, 77.0, 83.0, 88.0), scales=(1.2, 4.0, 12.0), path_step=0.77,
              heights=1.13, slopes=(0.0, 0.3, 0.7), first_step=0.097)


def real(x):
    """The exact value of a binary64 number."""
    return arb(x)


def round_to_bits(x, bits):
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)


class Sampled:
    """log G(w) of one Poisson-subsampled Gaussian step, w complex with Im w >= 0."""

    def __init__(self, q, sigma, plan, log10_count):
        self.q, self.sigma, self.plan = q, sigma, plan
        self.rho = math.log(q) - math.log1p(-q)
        self.ball_rho = (real(q) / (1 - real(q))).log()
        self.ball_log1mq = (1 - real(q)).log()
        self.ball_s2 = real(sigma) ** 2
        self.ball_norm = (self.ball_s2 / (2 * arb.pi())).sqrt().log()
        self.nats = (plan.digits + 5 + log10_count) * math.log(10)
        self.h = round_to_bits(self.step(self.nats), 16)  # so that every node i h is exact in binary64
        self.paths, self.cache = None, {}

    def step(self, nats):
        """Twice a step with exp(-2 pi * strip / h) below the target for the strip pi/2 of the branch
        points, and exp(-(2 pi / (h sigma))^2 / 2) for the Gaussian."""
        return self.plan.path_step * 1.6 * min(
            math.pi ** 2 / nats, 2 * math.pi / (self.sigma * math.sqrt(2 * nats)))

    # -- binary64 ------------------------------------------------------------------------------
    def log_g_over_1mq(self, v):
        zeta = v + self.rho
        right = zeta.real > 0
        small = np.exp(np.where(right, -zeta, zeta))
        return np.where(right, zeta, 0) + np.log(1 + small)

    def left_mode(self, w):
        """A point left of the maximum of |g^w phi| for negative w: sigma^2 (v+..) = w p(v)."""
        if w >= 0:
            return 0.0
        return min(-w / self.sigma ** 2, max(0.0, math.log(-w / self.sigma ** 2 + 1) + self.rho + 3))

    def real_log_g(self, w):
        """log G(w), w real, in binary64: for choosing the abscissa."""
        s = self.sigma
        lo = -0.5 / s ** 2 - 9.5 / s - self.left_mode(w)
        hi = -0.5 / s ** 2 + 9.5 / s + max(0.0, w) / s ** 2
        n = int(min(40000, max(400, (hi - lo) / min(0.12, 0.25 / s))))
        v = np.linspace(lo, hi, n)
        e = w * self.log_g_over_1mq(v + 0j).real - (s * (v + 0.5 / s ** 2)) ** 2 / 2
        m = e.max()
        return (m + math.log(np.exp(e - m).sum() * (v[1] - v[0]) * s / math.sqrt(2 * math.pi))
                + w * math.log1p(-self.q))

    def prepare(self, w_low):
        """Candidate paths on a coarse grid wide enough for abscissae down to w_low (if negative)
        and the tilted mode up to w_high (if positive)."""
        s, plan = self.sigma, self.plan
        reach = math.sqrt(2 * self.nats) / s
        lo = -0.5 / s ** 2 - reach * 1.25 - self.left_mode(w_low) - 3
        hi = -0.5 / s ** 2 + (reach * 1.7) + 3.0 * max(0.0, w_low) / s ** 2 + 4
        self.grid = np.linspace(lo, hi, 401)
        heights = [0.0]
        theta = 0.4 / s
        while theta < 2.1:
            heights.append(theta)
            theta *= 1.35
        heights = [t * plan.heights for t in heights if t * plan.heights < 2.4]
        starts = [-self.rho + d for d in (0.0, 2.0, 5.0, 12.0, 30.0)]
        self.paths = []
        for t in heights:
            for m in plan.slopes:
                for at in (starts if m else [0.0]):
                    if m and (at > hi or t + m * math.log1p(math.exp(min(50, -self.rho - at))) > 2.5):
                        continue
                    self.paths.append((t, m, at))
        curves = []
        for t, m, at in self.paths:
            v = self.grid + 1j * (t + m * np.logaddexp(0, self.grid - at))
            slope = m / (1 + np.exp(np.minimum(700, at - self.grid)))
            curves.append((self.log_g_over_1mq(v),
                           -(s * (v + 0.5 / s ** 2)) ** 2 / 2 + np.log(1 + 1j * slope)))
        self.ell = np.array([c[0] for c in curves])
        self.weight = np.array([c[1] for c in curves])
        # Every fourth point suffices to rank the paths.
        self.thin = tuple(np.ascontiguousarray(a[:, ::4]) for a in (
            self.ell.real, self.ell.imag, self.weight.real))

    def choose(self, w, nats):
        """The path with the smallest maximum, and the part of it that matters."""
        e = w.real * self.thin[0] - w.imag * self.thin[1] + self.thin[2]
        tops = e.max(axis=1)
        tops[np.maximum(e[:, 0], e[:, -1]) > tops - nats] = math.inf
        k = int(tops.argmin())
        if tops[k] == math.inf:
            raise ArithmeticError(f"path grid too short: q={self.q} sigma={self.sigma} w={w}")
        # A path whose nodes exist already is nearly as good if its top is: 3 nats cost one digit.
        used = [j for j in self.cache if tops[j] < tops[k] + 3]
        if used:
            k = min(used, key=lambda j: tops[j])
        full = (w * self.ell[k] + self.weight[k]).real
        keep = np.nonzero(full > full.max() - nats)[0]
        return k, max(0, keep[0] - 1), min(len(full) - 1, keep[-1] + 1)

    def rough_log_g(self, w):
        """(log G(w), G'/G) to a few digits, in binary64; the imaginary part is modulo 2 pi."""
        k, _, _ = self.choose(w, self.nats)
        e = w * self.ell[k] + self.weight[k]
        m = e.real.max()
        f = np.exp(e - m)
        total = f.sum()
        return (m + np.log(total) + math.log((self.grid[1] - self.grid[0]) * self.sigma
                                            / math.sqrt(2 * math.pi)) + w * math.log1p(-self.q),
                (f * self.ell[k]).sum() / total + math.log1p(-self.q))

    # -- balls ---------------------------------------------------------------------------------
    def node(self, k, i):
        """(log g, log of Gaussian weight times dv/ds) at s = i (exact) on path k."""
        t, m, at = self.paths[k]
        s = real(i)
        rise = (s - real(at)).exp()
        height = real(t) + real(m) * (1 + rise).log()
        slope = real(m) * rise / (1 + rise)
        v = acb(s, height)
        zeta = v + self.ball_rho
        if zeta.real > 0:
            ell = zeta + (1 + (-zeta).exp()).log()
        else:
            ell = (1 + zeta.exp()).log()
        centred = v + 1 / (2 * self.ball_s2)
        return (ell + self.ball_log1mq,
                -self.ball_s2 * centred * centred / 2 + acb(1, slope).log() + self.ball_norm)

    def log_g(self, w, spare=0.0):
        """log G(w); `spare` nats of the precision are not needed."""
        approx = complex(float(w.real.mid()), float(w.imag.mid()))
        nats = max(45.0, self.nats - spare)
        k, lo, hi = self.choose(approx, nats)
        lo, hi = self.grid[lo], self.grid[hi]
        cache = self.cache.setdefault(k, {})

        def comb(h, first, stride):
            total, i = acb(0), first
            while i * h <= hi:
                s = i * h
                pair = cache.get(s)
                if pair is None:
                    pair = cache[s] = self.node(k, s)
                total += (w * pair[0] + pair[1]).exp()
                i += stride
            return total

        # Halve the step until two trapezoids agree.  A step that does not resolve the fastest
        # oscillation, Im w g'/g at the right end, is not asked: aliases agree with each other.
        h = self.h
        while 2 * h < self.step(nats):
            h *= 2
        while h * approx.imag > 2 * math.pi * (1 + math.exp(min(700.0, -hi - self.rho))):
            h /= 2
        total = comb(h, math.floor(lo / h), 1)
        for _ in range(9):
            h /= 2
            new = total + comb(h, 2 * math.floor(lo / (2 * h)) + 1, 2)
            change = abs((new - 2 * total).mid()) / abs(new.mid())
            total = new
            if float(change.mid()) < math.exp(-0.9 * nats):
                return (total * real(h)).log()
        raise ArithmeticError(f"path quadrature: q={self.q} sigma={self.sigma} w={approx}")


class Curve:
    """delta(eps) of one composition in one direction ("remove" or "add")."""

    def __init__(self, events, explicits, direction, plan=FIRST):
        self.remove = direction == "remove"
        self.plan, ctx.prec = plan, plan.precision()
        self.explicits = explicits
        self.mu2 = sum((real(e["count"]) / real(e["sigma"]) ** 2 for e in events if e["rate"] == 1.0),
                       arb(0))
        self.steps = [(Sampled(e["rate"], e["sigma"], plan, math.log10(e["count"])), e["count"])
                      for e in events if e["rate"] < 1.0]
        finite = arb(1)
        for e in explicits:
            finite *= (1 - real(e["delta"])) ** e["count"]
        self.infinite = 1 - finite  # the probability of an infinite loss
        self.edge = sum(n * math.log1p(-s.q) for s, n in self.steps)
        self.nodes = None

    # -- binary64: choose the abscissa -----------------------------------------------------------
    def real_log_g(self, w):
        total = float(self.mu2) * w * (w - 1) / 2
        for s, n in self.steps:
            total += n * s.real_log_g(w)
        for e in self.explicits:
            e0 = e["epsilon"]
            total += e["count"] * (np.logaddexp(e0 * w, e0 * (1 - w)) - np.logaddexp(e0, 0))
        return total

    def order(self, c):
        """w = 1+z at the abscissa |c| of this direction."""
        return 1 + c if self.remove else -c

    def chernoff(self, c, eps):
        return self.real_log_g(self.order(c)) - c * eps

    def pick(self, objective):
        """argmin over c > 0 of a quasi-convex objective: coarse geometric scan, then golden."""
        best, best_value, c, worse = None, math.inf, 1e-3, 0
        while c < 1e9 and worse < 6:
            value = objective(c)
            if value < best_value:
                best, best_value, worse = c, value, 0
            else:
                worse += 1
            c *= 1.5
        lo, hi = math.log(best / 1.5), math.log(best * 1.5)
        for _ in range(14):
            a, b = lo + 0.382 * (hi - lo), lo + 0.618 * (hi - lo)
            if objective(math.exp(a)) < objective(math.exp(b)):
                hi = b
            else:
                lo = a
        return math.exp((lo + hi) / 2)

    def guess(self, log_delta):
        """A Chernoff over-estimate of eps(delta)."""
        def eps_of(c):
            return (self.chernoff(c, 0) + c * math.log(c) - (1 + c) * math.log1p(c) - log_delta) / c
        c = self.pick(eps_of)
        return eps_of(c)

    # -- the contour -----------------------------------------------------------------------------
    def place(self, eps):
        """Put the hyperbola through the saddle of exp(log G - z eps)/(z(z+1)) for this eps."""
        def objective(c):
            return self.chernoff(c, eps) - math.log(c) - math.log1p(c)
        c = self.pick(objective)
        curvature = second_difference(objective, c, 0.3)
        c += self.plan.shift * c / math.sqrt(c * c * curvature + 1)
        width = 1 / math.sqrt(second_difference(objective, c, 0.3))
        self.c, self.eps0 = c, eps
        self.start = real(c) if self.remove else -1 - real(c)  # z at the vertex
        for s, _ in self.steps:
            s.prepare(self.order(c))
            s.cache.clear()
        for factor in (1, 0.3, 3, 0.1, 10, 30):
            best = min((self.profile(eps, angle, scale * factor * width), angle, scale * factor * width)
                       for angle in self.plan.angles for scale in self.plan.scales)
            if best[0][0] < math.inf:
                break
        else:
            raise ArithmeticError("no hyperbola decays")
        self.shape, self.depths = best, best[0][1]
        self.size = real(best[2])
        self.cos = real(math.cos(math.radians(best[1])))
        self.sin = real(math.sin(math.radians(best[1])))
        self.nodes = {}

    def profile(self, eps, angle, size):
        """(An estimate of the nodes a hyperbola needs: its length in u times the largest rate at
        which the integrand's logarithm changes while it matters; infinite if the integrand has a
        higher second hump or does not decay.  And how many nats below its top the integrand stays
        from u = k GRID on.)"""
        cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        start, e, mu2 = float(self.start), self.sign(eps), float(self.mu2)
        low = (self.plan.digits + 5) * math.log(10)
        gone, fastest, end, depths = 0, 1.0, 0.0, []
        for k in range(60):
            u = GRID * k
            z = complex(start + size * cos * (math.cosh(u) - 1), size * sin * math.sinh(u))
            dz = complex(size * cos * math.sinh(u), size * sin * math.cosh(u))
            w = 1 + z
            try:
                logs = mu2 * w * z / 2 - z * e - np.log(z * w) + np.log(dz)
                rate = mu2 * (w - 0.5) - e - 1 / z - 1 / w
                for s, n in self.steps:
                    g, slope = s.rough_log_g(w)
                    logs, rate = logs + n * g, rate + n * slope
            except ArithmeticError:
                return math.inf, depths
            for x in self.explicits:
                e0 = x["epsilon"]
                a, b = e0 * w, e0 * (1 - w)
                big = a if a.real > b.real else b
                fa, fb = np.exp(a - big), np.exp(b - big)
                logs += x["count"] * (big + np.log(fa + fb) - math.log1p(math.exp(e0)))
                rate += x["count"] * e0 * (fa - fb) / (fa + fb)
            depths.append(depths[0] - logs.real if depths else logs.real)
            depth = depths[-1] / low if k else 0.0
            if depth < -3 / low:
                return math.inf, depths
            if depth > 1:
                gone += 1
                if gone > 8:
                    break
            else:
                gone, end = 0, u
                fastest = max(fastest, abs(rate * dz) * (1 - depth))
        depths[0] = 0.0
        lasting = list(np.minimum.accumulate(depths[::-1])[::-1])
        return (end + 0.3) * fastest if gone > 8 else math.inf, lasting

    def node(self, u, spare):
        """(z, log G(1+z), dz/du / (2 pi i z (z+1))) at parameter u >= 0; `spare` as in log_g."""
        up, down = u.exp(), (-u).exp()
        ch, sh = (up + down) / 2, (up - down) / 2
        z = acb(self.start + self.size * self.cos * (ch - 1), self.size * self.sin * sh)
        dz = acb(self.size * self.sin * ch, -self.size * self.cos * sh)  # dz/du divided by i
        w = z + 1
        total = self.mu2 * w * z / 2
        for s, n in self.steps:
            total += n * s.log_g(w, spare)
        for e in self.explicits:
            e0 = real(e["epsilon"])
            total += e["count"] * (((e0 * w).exp() + (e0 * (1 - w)).exp()) / (1 + e0.exp())).log()
        return z, total, dz / (2 * arb.pi() * z * w)

    def sign(self, eps):
        return eps if self.remove else -eps

    def fill(self, h, odd_only):
        """Nodes u = k h, outwards until the terms at eps0 vanish for good."""
        eps = real(self.sign(self.eps0))
        limit = (self.plan.digits + 5) * math.log(10)
        vanish = GRID * sum(d < limit for d in self.depths) + GRID
        for k in range(1 if odd_only else 0, 20000, 2 if odd_only else 1):
            if k * h > vanish:
                break
            # A term needs fewer digits by what it is smaller than the largest.
            depth = self.depths[min(len(self.depths), max(1, int(k * h / GRID))) - 1]
            z, logs, factor = self.node(real(h) * k, max(0.0, depth - 6))
            self.nodes[k * h] = (z, logs.exp() * factor * (1 if k else arb(1) / 2))
        else:
            raise ArithmeticError("the contour needs too many nodes")
        size = float((logs - z * eps).real.mid()) + math.log(float(abs(factor).mid()))
        if size > math.log(float(abs(self.nodes[0][1] * (-self.nodes[0][0] * eps).exp()).mid())) - limit:
            raise ArithmeticError("the contour does not decay")

    def value(self, eps, h, slope=False):
        """delta of the finite part (and its derivative) by the trapezoid of step h."""
        e = self.sign(eps)
        total, derivative = arb(0), arb(0)
        for z, f in self.nodes.values():
            term = f * (-z * e).exp()
            total += term.real
            if slope:
                derivative -= (z * term).real
        total, derivative = 2 * real(h) * total, 2 * real(h) * derivative
        if not self.remove:
            lift = eps.exp()
            total, derivative = total * lift, (total - derivative) * lift
        return (total, derivative) if slope else total

    def refine(self):
        """Halve the step until the value at eps0 stands still; returns the final step.

        The trapezoid converges geometrically, so that halving mostly squares the error: when two
        values agree to half the digits, the next is mostly exact to all of them."""
        h = self.plan.first_step
        self.fill(h, False)
        eps = real(self.eps0)
        before = self.value(eps, h)
        for _ in range(8):
            h /= 2
            self.fill(h, True)
            after = self.value(eps, h)
            change = abs(float(((after - before) / after).mid()))
            if change < 10 ** (-self.plan.settle * self.plan.digits):
                self.h = h
                return
            before = after
        raise ArithmeticError("the contour did not converge")

    def target(self, delta):
        """delta for the finite part: (delta - p_inf)/(1 - p_inf); not positive means eps = inf."""
        return (real(delta) - self.infinite) / (1 - self.infinite)

    def delta(self, eps):
        """delta(eps) as a ball (rounding only)."""
        self.place(eps)
        self.refine()
        return self.infinite + (1 - self.infinite) * self.value(real(eps), self.h)

    def epsilon(self, delta, start=None):
        """eps(delta), the root of delta(eps) = delta on eps >= 0: arb, or 0 if delta(0) <= delta,
        or None if delta does not exceed the probability of an infinite loss.  Where the search
        starts costs time and nothing else."""
        goal = self.target(delta)
        if not goal > 0:
            return None
        eps = start or max(0.0, self.guess(float(goal.log().mid())))
        full, rough = self.plan, self.plan.rough()
        self.use(rough)
        if eps < 0.3 and not start:
            excess = float(self.delta(0.0).mid()) / delta - 1
            if abs(excess) < 1e-6:
                self.use(full)
                excess = float((self.delta(0.0) / real(delta) - 1).mid())
                self.use(rough)
            if excess <= 0:
                return arb(0)
        for _ in range(40):
            before, eps = eps, max(1e-12, float(self.root(eps, goal)))
            if abs(eps - before) < 0.02 * before:
                break
        # A small eps has fewer digits than its delta: ask for as many more.
        value, derivative = self.value(real(eps), self.h, slope=True)
        lost = math.log10(abs(float((value / (derivative * eps)).mid())))
        self.use(full.changed(digits=full.digits + max(0, math.ceil(lost))))
        x = self.root(eps, goal)
        below, above = (self.value(x * (1 + real(sign) * arb("1e-41")), self.h) for sign in (-1, 1))
        if not below > goal > above:
            raise ArithmeticError("the root is not bracketed")
        return x

    def use(self, plan):
        self.plan, ctx.prec = plan, plan.precision()
        self.steps = [(Sampled(s.q, s.sigma, plan, math.log10(n)), n) for s, n in self.steps]

    def root(self, eps, goal):
        """The root found with a contour placed for eps."""
        self.place(eps)
        self.refine()
        x = real(eps)
        for _ in range(60):
            value, derivative = self.value(x, self.h, slope=True)
            # Newton on log delta, which is concave and nearly linear in eps.
            step = (value / goal).log() * value / derivative
            x = (x - step).mid()
            if eps and not 0.5 * eps < x < 2 * eps:  # the contour serves its neighbourhood only
                return real(0.5 * eps if x < eps else 2 * eps)
            if abs(float(step.mid())) < 10.0 ** -(self.plan.digits + 3) * max(1e-12, abs(float(x))):
                break
        else:
            raise ArithmeticError("Newton did not converge")
        self.residual = value
        return x


def second_difference(f, c, floor):
    d = 1e-3 * c
    return max((f(c - d) - 2 * f(c) + f(c + d)) / d ** 2, floor / c ** 2)


def evaluate(events, explicits, delta, direction, plan=FIRST, start=None):
    return Curve(events, explicits, direction, plan).epsilon(delta, start)


# -- closed forms and direct quadratures, for checking ---------------------------------------------
def upper_tail(x):
    return (x / arb(2).sqrt()).erfc() / 2


def one_step_remove(q, sigma, eps):
    """Closed form of delta for one subsampled step, P against Q; q, sigma, eps are arb."""
    low = (1 - q).log() if q < 1 else None
    if low is not None and eps <= low:
        return 1 - eps.exp()
    x = sigma ** 2 * (1 + (eps.exp() - 1) / q).log() + arb(1) / 2
    return q * upper_tail((x - 1) / sigma) + (1 - q - eps.exp()) * upper_tail(x / sigma)


def gaussian(mu, eps):
    """Closed form for full batches with mu^2 = sum n/sigma^2."""
    return upper_tail(eps / mu - mu / 2) - eps.exp() * upper_tail(eps / mu + mu / 2)


def has_closed_form(events, explicits):
    return (all(e["rate"] == 1.0 for e in events) and events) or (
        len(events) == 1 and events[0]["count"] == 1 and not explicits)


def closed_delta(events, explicits, direction, eps):
    """delta(eps) of one subsampled step, or of full batches with explicit events."""
    if events[0]["rate"] < 1.0:
        q, sigma = real(events[0]["rate"]), real(events[0]["sigma"])
        if direction == "remove":
            return one_step_remove(q, sigma, eps)
        return 1 - eps.exp() + eps.exp() * one_step_remove(q, sigma, -eps)
    mu = sum((e["count"] / real(e["sigma"]) ** 2 for e in events), arb(0)).sqrt()
    atoms, finite = [(arb(1), arb(0))], arb(1)
    for x in explicits:
        e0 = real(x["epsilon"])
        up = e0.exp() / (1 + e0.exp())
        for _ in range(x["count"]):
            atoms = [(w * p, s + d) for w, s in atoms for p, d in ((up, e0), (1 - up, -e0))]
        finite *= (1 - real(x["delta"])) ** x["count"]
    return 1 - finite + finite * sum((w * gaussian(mu, eps - s) for w, s in atoms), arb(0))


def closed_epsilon(events, explicits, delta, direction):
    """eps(delta) by bisection of the closed form, to 200 bits and more."""
    before, ctx.prec = ctx.prec, 600
    try:
        goal, low, high = real(delta), arb(0), arb(1)
        if closed_delta(events, explicits, direction, low) <= goal:
            return arb(0)
        while closed_delta(events, explicits, direction, high) > goal:
            low, high = high, 2 * high
        for _ in range(230):
            middle = ((low + high) / 2).mid()
            if closed_delta(events, explicits, direction, middle) > goal:
                low = middle
            else:
                high = middle
        return low
    finally:
        ctx.prec = before


def integral(f, low, high):
    """A rigorous ball around the integral of an entire function of one real variable."""
    return acb.integral(lambda x, _: f(x), acb(low), acb(high), rel_tol=arb(2) ** -(ctx.prec - 20),
                        abs_tol=arb(10) ** -100).real


def one_step_quadrature(q, sigma, eps, direction):
    """delta of one sampled step and its derivative, integrating the densities where they differ
    enough; q, sigma, eps are arb.  What is cut off, beyond 40 sigma, is below 10^-300."""
    lift = eps.exp()
    ratio = lift if direction == "remove" else 1 / lift
    if not ratio > 1 - q:  # no x has e^eps P(x) < Q(x)
        return arb(0), arb(0)
    edge = sigma ** 2 * ((ratio - 1 + q) / q).log() + arb(1) / 2
    norm = 1 / (sigma * (2 * arb.pi()).sqrt())

    def without(x):
        return (-(x / sigma) ** 2 / 2).exp() * norm

    def sampled(x):
        return (1 - q) * without(x) + q * without(x - 1)
    if direction == "remove":
        p, r, ends = sampled, without, (edge, edge + 40 * sigma + 1 - min(edge, arb(0)))
    else:
        p, r, ends = without, sampled, (edge - 40 * sigma - max(edge, arb(0)), edge)
    worse = integral(r, *ends)
    return integral(p, *ends) - lift * worse, -lift * worse


def quadrature_epsilon(events, delta, direction, start):
    """eps(delta) of one sampled step by Newton's method on the quadrature; 0 stays if it holds."""
    before, ctx.prec = ctx.prec, 400
    try:
        q, sigma, eps = real(events[0]["rate"]), real(events[0]["sigma"]), real(start)
        if start == 0:
            return arb(0) if one_step_quadrature(q, sigma, eps, direction)[0] <= real(delta) else None
        for _ in range(5):
            value, slope = one_step_quadrature(q, sigma, eps, direction)
            eps = (eps - (value / real(delta)).log() * value / slope).mid()
        return eps
    finally:
        ctx.prec = before


def nested_remove(q, sigma, eps, steps, h=None):
    """delta of `steps` equal steps by direct quadrature over x of the last one, recursively."""
    if steps == 1:
        return one_step_remove(q, sigma, eps)
    h = h or arb("0.06")
    edge = (1 - q).log() * (steps - 1)
    if eps <= edge + (1 - q).log():
        return 1 - eps.exp()
    # Past x_star the rest of the steps always contributes 1 - e^(eps - loss).
    x_star = sigma ** 2 * (1 + ((eps - edge).exp() - 1) / q).log() + arb(1) / 2
    total = (q * upper_tail((x_star - 1) / sigma) + (1 - q) * upper_tail(x_star / sigma)
             - eps.exp() * upper_tail(x_star / sigma))
    step, tau = h, arb(-95)
    norm = 1 / (sigma * (2 * arb.pi()).sqrt())
    reach = float(abs(x_star)) + 14.5 * float(sigma)
    acc = arb(0)
    while float(tau) < math.log(reach):
        u = tau.exp()
        x = x_star - u
        density = ((1 - q) * (-(x / sigma) ** 2 / 2).exp()
                   + q * (-((x - 1) / sigma) ** 2 / 2).exp()) * norm
        if float(density * u) > 1e-60:
            loss = (1 - q + q * ((2 * x - 1) / (2 * sigma ** 2)).exp()).log()
            acc += density * u * nested_remove(q, sigma, (eps - loss).mid(), steps - 1, h)
        tau = (tau + step).mid()
    return total + acc * step
