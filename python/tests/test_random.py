import math

import numpy as np
import pytest

import discreet
from discreet.random import Generator

ALGORITHMS = ["philox4x32", "aes128ctr", "chacha20"]


def insecure(**options):
    return Generator.insecure(7, **options)


def refused(call, *arguments, **options):
    with pytest.raises(discreet.Error) as caught:
        call(*arguments, **options)
    return caught.value.code


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_draws_into_the_array_given(algorithm, dtype):
    generator = insecure(algorithm=algorithm)
    out = np.full((50, 40), np.nan, dtype)
    address = out.ctypes.data
    generator.fill_gaussian(out, 2.0, step=3, tensor=1)
    assert out.ctypes.data == address
    assert np.isfinite(out).all()
    # 2000 values: false alarms below 1e-6 at 5 standard errors.
    assert abs(out.mean()) < 5 * 2 / math.sqrt(2000)
    again = np.empty_like(out)
    generator.fill_gaussian(again, 2.0, step=3, tensor=1, threads=2)
    np.testing.assert_array_equal(out, again)
    rest = np.empty(1001, dtype)
    generator.fill_gaussian(rest, 2.0, step=3, tensor=1, coordinate=999)
    np.testing.assert_array_equal(rest, out.ravel()[999:])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_adds_noise_in_binary64_and_rounds_once(dtype):
    noise = np.empty(1000)
    insecure().fill_gaussian(noise)
    x = np.linspace(-1, 1, 1000).astype(dtype)
    expected = (x.astype(np.float64) + 0.5 * noise).astype(dtype)
    insecure().add_gaussian(x, 0.5)
    np.testing.assert_array_equal(x, expected)


def test_refuses_what_it_would_have_to_copy():
    generator = insecure()
    read_only = np.zeros(4)
    read_only.flags.writeable = False
    whole = np.zeros((4, 4))
    for bad in (whole[:, ::2], whole[::2], whole.T[:2], whole[::-1], read_only,
                np.zeros(4, np.float16), np.zeros(4, np.int64), np.zeros(4, ">f8"), [0.0], 1.0):
        for call in (generator.fill_gaussian, generator.add_gaussian):
            assert refused(call, bad, 1.0) == "INVALID_INPUT"
    assert not whole.any()
    assert refused(generator.fill_gaussian_native32, np.zeros(4)) == "INVALID_INPUT"
    assert refused(generator.fill_discrete_gaussian, np.zeros(4), (1, 1)) == "INVALID_INPUT"


def test_takes_arrays_of_any_shape_in_c_order():
    generator = insecure()
    for shape in ((), (0,), (3, 0), (1, 5), (5, 1), (2, 3, 4)):
        out = np.zeros(shape)
        generator.fill_gaussian(out)
        assert (out != 0).all()
    transposed = np.zeros((1, 6)).T  # still one run of memory
    generator.fill_gaussian(transposed)
    assert transposed.all()


def test_bad_scales_write_nothing():
    x = np.ones(8)
    for stddev, code in ((math.nan, "NAN_IN_SIGMA"), (math.inf, "NAN_IN_SIGMA"),
                         (-1.0, "INVALID_DP_CONFIG")):
        assert refused(insecure().add_gaussian, x, stddev) == code
        assert refused(insecure().fill_gaussian, x, stddev) == code
        assert refused(insecure().fill_laplace, x, stddev) == code
    assert (x == 1).all()


def test_seeds_are_those_of_64_bits():
    for seed in (0, 2**64 - 1):
        Generator.insecure(seed)
    for seed in (-1, 2**64):
        assert refused(Generator.insecure, seed) == "INVALID_DP_CONFIG"


def test_steps_beyond_the_layout_are_refused():
    out = np.zeros(2)
    insecure().fill_gaussian(out, step=2**24 - 1, tensor=2**40 - 1)
    assert refused(insecure().fill_gaussian, out, step=2**24) == "INVALID_DP_CONFIG"
    assert refused(insecure().fill_gaussian, out, tensor=2**40) == "INVALID_DP_CONFIG"


def test_secure_generators_differ_and_show_no_key():
    a, b = Generator.secure(), Generator.secure()
    x, y = np.zeros(4), np.zeros(4)
    a.fill_gaussian(x)
    b.fill_gaussian(y)
    assert (x != y).all()
    assert a.algorithm in ("aes128ctr", "chacha20")
    assert repr(a) == f"<discreet.random.Generator {a.algorithm}>"


def test_discrete_families_draw_integers():
    generator = insecure()
    for fill in (generator.fill_discrete_laplace, generator.fill_discrete_gaussian,
                 generator.fill_rounded_gaussian, generator.fill_skellam):
        out = np.zeros(2000, np.int64)
        fill(out, (81, 4))
        again = np.zeros(2000, np.int64)
        fill(again, (81, 4), threads=2)
        np.testing.assert_array_equal(out, again)
        assert len(np.unique(out)) > 10
        assert refused(fill, out, (0, 1)) == "INVALID_DP_CONFIG"


def test_subsets():
    generator = insecure(stream="sampling")
    whole = generator.poisson_subset(10_000, 0.1, step=5)
    assert 800 < len(whole) < 1200
    part = generator.poisson_subset(10_000, 0.1, step=5, begin=5000, threads=2)
    np.testing.assert_array_equal(part, whole[whole >= 5000])
    assert sorted(generator.permutation(100)) == list(range(100))
    assert len(set(generator.fixed_size_subset(60_000, 256))) == 256
    bins = np.zeros(1000, np.uint32)
    generator.assign_bins(bins, 10, epoch=1)
    assert set(bins) == set(range(10))
    assert refused(generator.poisson_subset, 10, 1.5) == "INVALID_DP_CONFIG"
