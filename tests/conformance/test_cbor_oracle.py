"""discreet/base/cbor against cbor2: they must agree on which bytes are a canonical encoding.

cbor2 reads and writes the scalars and the heads. Its own canonical mode sorts keys by length first
(RFC 7049) and its decoder gives tags a meaning, so containers are put together here. The pure Python
half of cbor2 is used: its tables can be changed, and the C half of 5.9.0 writes 32768.0 in five bytes.
"""

import io
import math
import os
import random
import struct
import subprocess
from dataclasses import dataclass

import pytest
from cbor2 import _decoder, _encoder
from cbor2._types import CBORDecodeError, CBORTag

MAX_DEPTH = 64


@dataclass
class Map:
    """Entries as they came: a dict would merge the keys 1, 1.0 and True."""

    entries: list


def decode_map(decoder, subtype):
    size = decoder._decode_length(subtype)
    return Map([(decoder.decode(), decoder.decode()) for _ in range(size)])


@pytest.fixture(autouse=True)
def plain_decoder(monkeypatch):
    monkeypatch.setattr(_decoder, "semantic_decoders", {})
    monkeypatch.setitem(_decoder.major_decoders, 5, decode_map)


def head(major, argument):
    out = io.BytesIO()
    _encoder.CBOREncoder(out).encode_length(major, argument)
    return out.getvalue()


class Outside(Exception):
    """A value outside the profile of discreet/base/cbor.h."""


def canonical(value, depth=0):
    if isinstance(value, (list, tuple, Map, CBORTag)) and depth >= MAX_DEPTH:
        raise Outside("depth")
    if isinstance(value, (list, tuple)):
        return head(4, len(value)) + b"".join(canonical(item, depth + 1) for item in value)
    if isinstance(value, Map):
        encoded = {canonical(k, depth + 1): canonical(v, depth + 1) for k, v in value.entries}
        if len(encoded) < len(value.entries):
            raise Outside("duplicate key")
        return head(5, len(encoded)) + b"".join(k + v for k, v in sorted(encoded.items()))
    if isinstance(value, CBORTag):
        return head(6, value.tag) + canonical(value.value, depth + 1)
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return _encoder.dumps(value, canonical=True)
    raise Outside(repr(value))  # undefined, other simple values, a stray break


def is_canonical(encoding):
    stream = io.BytesIO(encoding)
    try:
        value = _decoder.CBORDecoder(stream).decode()
        return stream.read() == b"" and canonical(value) == encoding
    except (CBORDecodeError, Outside, OverflowError, TypeError):
        return False


def echo(encodings):
    """The answers of the C++ codec: the bytes it made of each encoding, or its rejection."""
    program = os.path.join(os.environ["DISCREET_BUILD"], "tests", "cbor_echo")
    lines = "\n".join(encoding.hex() for encoding in encodings) + "\n"
    result = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    answers = result.stdout.splitlines()
    assert len(answers) == len(encodings)
    return [bytes.fromhex(a[3:]) if a.startswith("ok ") else a for a in answers]


# --- Random values -------------------------------------------------------------------------------

def random_integer(rng):
    edge = rng.choice([0, 1, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**64 - 1,
                       rng.getrandbits(rng.randint(1, 64))])
    return edge if rng.random() < 0.5 else -1 - edge


def random_float(rng):
    form = rng.choice(["<e", "<f", "<d"])
    (number,) = struct.unpack(form, rng.randbytes(struct.calcsize(form)))
    if rng.random() < 0.2:  # next to what a shorter form holds
        number = math.nextafter(number, rng.choice([-math.inf, math.inf]))
    return number


def random_text(rng):
    planes = [(0, 0x7f), (0x80, 0x7ff), (0x800, 0xd7ff), (0xe000, 0xffff), (0x10000, 0x10ffff)]
    return "".join(chr(rng.randint(*rng.choice(planes))) for _ in range(rng.choice([0, 1, 3, 30])))


def random_value(rng, depth=0):
    kinds = 8 if depth < 5 else 5
    width = rng.choice([0, 1, 2, 30 if depth == 0 else 3])
    match rng.randrange(kinds):
        case 0 | 1: return random_integer(rng)
        case 2: return random_float(rng)
        case 3: return random_text(rng)
        case 4: return rng.choice([None, True, False, rng.randbytes(rng.choice([0, 1, 24, 300]))])
        case 5: return [random_value(rng, depth + 1) for _ in range(width)]
        case 6: return CBORTag(abs(random_integer(rng)) % 2**64, random_value(rng, depth + 1))
        case 7:
            entries = [(random_value(rng, depth + 2), random_value(rng, depth + 2))
                       for _ in range(width)]
            return Map(list({canonical(k): (k, v) for k, v in entries}.values()))


def values(seed, count):
    rng = random.Random(seed)
    return [random_value(rng) for _ in range(count)]


def test_every_canonical_encoding_comes_back():
    encodings = [canonical(value) for value in values(seed=1, count=20_000)]
    for encoding, answer in zip(encodings, echo(encodings)):
        assert answer == encoding, (encoding.hex(), answer)


# --- Encodings of the same values that break one rule --------------------------------------------

def long_head(rng, value):
    major, argument = (0, value) if value >= 0 else (1, -1 - value)
    width = rng.choice([w for w in (1, 2, 4, 8) if argument < 256**w])
    long = bytes([major << 5 | {1: 24, 2: 25, 4: 26, 8: 27}[width]]) + argument.to_bytes(width, "big")
    return long if len(long) > len(canonical(value)) else None


def long_float(rng, value):
    form, initial = rng.choice([(">f", 0xfa), (">d", 0xfb)])
    try:
        long = bytes([initial]) + struct.pack(form, value)
    except OverflowError:
        return None
    return long if len(long) > len(canonical(value)) else None


def indefinite(major, parts):
    return bytes([major << 5 | 31]) + b"".join(parts) + b"\xff"


def break_one_rule(rng, value):
    """An encoding of `value`, well-formed but not canonical, or None."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return long_head(rng, value)
    if isinstance(value, float):
        return long_float(rng, value)
    if isinstance(value, str):
        return indefinite(3, [canonical(value)])
    if isinstance(value, bytes):
        return indefinite(2, [canonical(value)])
    if isinstance(value, list):
        parts = [canonical(item) for item in value]
        if parts and rng.random() < 0.7:
            i = rng.randrange(len(parts))
            parts[i] = break_one_rule(rng, value[i])
            return None if parts[i] is None else head(4, len(parts)) + b"".join(parts)
        return indefinite(4, parts)
    if isinstance(value, Map):
        parts = sorted(canonical(k) + canonical(v) for k, v in value.entries)
        if len(parts) < 2 or rng.random() < 0.2:
            return indefinite(5, parts)
        i, j = rng.sample(range(len(parts)), 2)
        if rng.random() < 0.5:
            parts[i], parts[j] = parts[j], parts[i]
        else:
            parts[i] = parts[j]
        return head(5, len(parts)) + b"".join(parts)
    inner = break_one_rule(rng, value.value)
    return None if inner is None else head(6, value.tag) + inner


def test_every_encoding_that_breaks_a_rule_is_refused():
    rng = random.Random(2)
    broken = [break_one_rule(rng, value) for value in values(seed=3, count=10_000)]
    broken = [encoding for encoding in broken if encoding is not None]
    assert len(broken) > 5_000
    for encoding, answer in zip(broken, echo(broken)):
        assert not is_canonical(encoding), encoding.hex()
        assert isinstance(answer, str) and answer.startswith("no MALFORMED: "), encoding.hex()


# --- Arbitrary damage: agreement either way ------------------------------------------------------

def mutate(rng, encoding):
    data = bytearray(encoding)
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if at < len(data): data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data): data[at] = rng.randrange(256)
            case 2 if at < len(data): del data[at]
            case 3: data.insert(at, rng.randrange(256))
            case 4: del data[at:]
    return bytes(data)


def test_damaged_encodings_are_judged_as_cbor2_judges_them():
    rng = random.Random(4)
    originals = [canonical(value) for value in values(seed=5, count=20_000)]
    damaged = [mutate(rng, encoding) for encoding in originals]
    damaged += [rng.randbytes(rng.randint(0, 12)) for _ in range(20_000)]
    accepted = 0
    for encoding, answer in zip(damaged, echo(damaged)):
        if is_canonical(encoding):
            assert answer == encoding, (encoding.hex(), answer)
            accepted += 1
        else:
            assert isinstance(answer, str) and answer.startswith("no MALFORMED: "), encoding.hex()
    assert 2_000 < accepted < 38_000  # both verdicts are exercised


def test_both_call_the_golden_file_the_same():
    with open("tests/golden/cbor.txt", encoding="utf-8") as file:
        rows = [line.split()[:2] for line in file if line.strip() and not line.startswith("#")]
    for verdict, digits in rows:
        encoding = b"" if digits == "-" else bytes.fromhex(digits)
        assert is_canonical(encoding) == (verdict == "accept"), digits
