"""Prints the rows of renyi.txt: log-moments at 40 digits by mpmath, independent of discreet.

    python tests/golden/accounting/renyi.py > tests/golden/accounting/renyi.txt
"""
from mpmath import exp, linspace, log, mp, mpf, pi, quad, sqrt

mp.dps = 40


def moment(q, sigma, order):
    """log E_Q[(P/Q)^order] for P = (1-q)N(0,s^2) + qN(1,s^2), Q = N(0,s^2), by quadrature."""
    q, s, a = mpf(q), mpf(sigma), mpf(order)

    def f(x):
        return (1 - q + q * exp((2 * x - 1) / (2 * s * s))) ** a * exp(-x * x / (2 * s * s)) / (s * sqrt(2 * pi))

    low, high = -16 * s, a + 16 * s
    pieces = max(24, int((high - low) / min(s, 2 * s * s)))
    return log(quad(f, linspace(low, high, pieces + 1)))


SETTINGS = [("0.01", "2.5", a) for a in ("1.5", "5", "50", "100")]
SETTINGS += [("0.01", "0.25", a) for a in ("1.25", "3", "7.5")]
SETTINGS += [("0.04", "1.5", a) for a in ("1.1", "2", "4.3", "12", "20.75")]
SETTINGS += [("0.001", "0.6", a) for a in ("1.01", "2.5", "9", "40.5")]
SETTINGS += [("0.5", "1", a) for a in ("1.3", "2", "17.5", "63")]
SETTINGS += [("0.999", "0.8", a) for a in ("1.7", "3", "30.25")]
SETTINGS += [("1e-05", "10", a) for a in ("1.5", "2", "32", "333.25")]
SETTINGS += [("0.2", "30", a) for a in ("1.5", "17", "800.5")]

for q, sigma, order in SETTINGS:
    # The inputs are the binary64 numbers, not the decimals.
    value = moment(float(q), float(sigma), float(order))
    print(q, sigma, order, mp.nstr(value, 20))
