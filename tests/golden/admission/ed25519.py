"""Ed25519 cases with the verdict of discreet/admission/ed25519.md: `python3 ed25519.py > ed25519.txt`.

Arithmetic of its own, from the definitions of RFC 8032; no library. A line is
`name accept|refuse public_key message signature`, in hexadecimal, `-` for an empty message. The first lines are
the vectors of RFC 8032, section 7.1, read from rfc8032.txt (`seed public_key message signature`) and recomputed.
"""

import hashlib
import pathlib
import random

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def add(a, b):
    (x1, y1), (x2, y2) = a, b
    k = D * x1 * x2 * y1 * y2
    return ((x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P)


def times(n, point):
    result = (0, 1)
    while n:
        if n & 1:
            result = add(result, point)
        point = add(point, point)
        n >>= 1
    return result


def negated(point):
    return (-point[0] % P, point[1])


def with_y(y, sign):
    """The point of that y, or None."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT % P
    if x * x % P != square:
        return None
    return (x if x & 1 == sign or x == 0 else P - x, y)


BASE = with_y(4 * pow(5, -1, P) % P, 0)


def encoded(point):
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def number(data):
    return int.from_bytes(data, "little")


def challenge(r, a, message):
    return number(hashlib.sha512(r + a + message).digest()) % L


def expand(seed):
    h = hashlib.sha512(seed).digest()
    return (number(h[:32]) & ~7 & (1 << 254) - 1) | 1 << 254, h[32:]


def sign(seed, message):
    a, prefix = expand(seed)
    public = encoded(times(a, BASE))
    r = number(hashlib.sha512(prefix + message).digest()) % L
    big_r = encoded(times(r, BASE))
    return public, big_r + ((r + challenge(big_r, public, message) * a) % L).to_bytes(32, "little")


def passes(a_bytes, a, r_bytes, s, message):
    """[S]B = R' + [h]A with R' encoded as r_bytes: the equation without cofactor."""
    h = challenge(r_bytes, a_bytes, message)
    return encoded(add(times(s % L, BASE), negated(times(h, a)))) == r_bytes


def passes_with_cofactor(a_bytes, a, r_bytes, r, s, message):
    h = challenge(r_bytes, a_bytes, message)
    return times(8 * s % L, BASE) == times(8, add(r, times(h, a)))


def torsion():
    """The eight points whose order divides 8."""
    rng = random.Random(1)
    while True:
        point = with_y(rng.randrange(P), 0)
        if point is None:
            continue
        point = times(L, point)
        if times(4, point) != (0, 1):
            return [times(i, point) for i in range(8)]


def show(name, verdict, public, message, signature):
    print(name, verdict, public.hex(), message.hex() or "-", signature.hex())


def main():
    rng = random.Random(8032)
    random_bytes = rng.randbytes
    for i, line in enumerate((pathlib.Path(__file__).parent / "rfc8032.txt").read_text().splitlines()):
        seed, public, message, signature = (bytes.fromhex(f if f != "-" else "") for f in line.split(" "))
        assert sign(seed, message) == (public, signature), i
        show(f"rfc8032_{i + 1}", "accept", public, message, signature)
    for i in range(20):
        message = random_bytes(i * 7)
        public, signature = sign(random_bytes(32), message)
        show(f"honest_{i}", "accept", public, message, signature)
        flipped = bytearray(signature)
        flipped[rng.randrange(64)] ^= 1 << rng.randrange(8)
        show(f"flipped_{i}", "refuse", public, message, bytes(flipped))
        show(f"other_message_{i}", "refuse", public, message + b"x", signature)

    small = torsion()
    seed = random_bytes(32)
    a, _ = expand(seed)
    message = b"any message"
    # S + L: the same equation, another signature.
    public, signature = sign(seed, message)
    s = number(signature[32:])
    for i in range(1, 1 + (2**256 - s) // L):
        show(f"s_plus_{i}_l", "refuse", public, message, signature[:32] + (s + i * L).to_bytes(32, "little"))
    show("s_zero_r_low", "refuse", public, message, encoded(small[0]) + bytes(32))
    for value, name in ((L, "s_is_l"), (2**252, "s_is_2_252"), (2**256 - 1, "s_largest")):
        show(name, "refuse", public, message, signature[:32] + value.to_bytes(32, "little"))

    # Low order A, any R: S = r, h a multiple of the order of A. Low order R: S = h a.
    for i, point in enumerate(small):
        key = encoded(point)
        for attempt in range(1000):
            text = b"low order key %d" % attempt
            r = rng.randrange(1, L)
            big_r = encoded(times(r, BASE))
            if passes(key, point, big_r, r, text):
                break
        else:
            raise AssertionError
        show(f"low_a_{i}", "refuse", key, text, big_r + r.to_bytes(32, "little"))
        for attempt in range(1000):
            text = b"low order key and R %d" % attempt
            if passes(key, point, encoded(small[0]), 0, text):
                break
        show(f"low_a_low_r_{i}", "refuse", key, text, encoded(small[0]) + bytes(32))
        # R of low order, honest A: [h]A + R = [S]B has a solution for R = identity only; with a
        # key of mixed order, for others.
        mixed = add(times(a, BASE), small[1])
        key = encoded(mixed)
        for attempt in range(2000):
            text = b"low order R %d" % attempt
            r_bytes = encoded(point)
            h = challenge(r_bytes, key, text)
            if passes(key, mixed, r_bytes, h * a % L, text):
                show(f"low_r_{i}", "refuse", key, text, r_bytes + (h * a % L).to_bytes(32, "little"))
                break
        else:
            raise AssertionError

    # Mixed order, passing without cofactor: accepted; passing only with cofactor: rejected.
    mixed = add(times(a, BASE), small[1])
    key = encoded(mixed)
    found = {}
    attempt = 0
    while len(found) < 2:
        text = b"mixed order %d" % attempt
        attempt += 1
        r = rng.randrange(1, L)
        point = add(times(r, BASE), small[3])
        big_r = encoded(point)
        s = (r + challenge(big_r, key, text) * a) % L
        assert passes_with_cofactor(key, mixed, big_r, point, s, text)
        verdict = "accept" if passes(key, mixed, big_r, s, text) else "refuse"
        if verdict not in found:
            found[verdict] = True
            show(f"mixed_order_{verdict}", verdict, key, text, big_r + s.to_bytes(32, "little"))

    # Encodings with y >= p, and of x = 0 with a sign: as key and as R.
    other = [(y + P).to_bytes(32, "little") for y in range(19)]
    other += [bytes([*e[:31], e[31] | 0x80]) for e in other]
    other += [bytes([1] + 30 * [0] + [0x80]), bytes([0xEC] + 31 * [0xFF])]
    for i, encoding in enumerate(other):
        y = number(encoding) & (2**255 - 1)
        point = with_y(y % P, encoding[31] >> 7)
        show(f"other_encoding_r_{i}", "refuse", public, message, encoding + signature[32:])
        if point is None:
            show(f"other_encoding_a_{i}", "refuse", encoding, message, signature)
            continue
        # Nobody knows the logarithm of such a point unless it is of low order; then it can pass.
        for attempt in range(200 if point in small else 1):
            text = b"other encoding %d" % attempt
            r = rng.randrange(1, L)
            big_r = encoded(times(r, BASE))
            if passes(encoding, point, big_r, r, text):
                break
        show(f"other_encoding_a_{i}", "refuse", encoding, text, big_r + r.to_bytes(32, "little"))
    # y that is on no point of the curve.
    y = next(y for y in range(2, 1000) if with_y(y, 0) is None)
    show("off_curve_a", "refuse", y.to_bytes(32, "little"), message, signature)
    show("off_curve_r", "refuse", public, message, y.to_bytes(32, "little") + signature[32:])


if __name__ == "__main__":
    main()
