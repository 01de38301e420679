import numpy as np
import pytest

import discreet
from discreet import clip


def gradients(dtype=np.float64, records=20):
    random = np.random.default_rng(5)
    return {
        "a.weight": random.normal(size=(records, 30, 7)).astype(dtype),
        "a.bias": random.normal(size=(records, 7)).astype(dtype),
        "b.scale": random.normal(size=records).astype(dtype),
    }


def reference(arrays, parts, bounds):
    """The definition, by NumPy: parts is a list of lists of names."""
    total = {name: np.zeros(array.shape[1:]) for name, array in arrays.items()}
    for names, bound in zip(parts, bounds):
        squares = sum(np.square(arrays[n].astype(np.float64)).reshape(len(arrays[n]), -1).sum(1)
                      for n in names)
        scales = np.minimum(1, bound / (np.sqrt(squares) + 1e-8))
        for n in names:
            total[n] += np.tensordot(scales, arrays[n].astype(np.float64), axes=1)
    return total


def refused(*arguments, **options):
    with pytest.raises(discreet.Error) as caught:
        clip(*arguments, **options)
    return caught.value


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("strategy, parts", [
    ("per_sample", [["a.weight", "a.bias", "b.scale"]]),
    ("per_layer", [["a.weight", "a.bias"], ["b.scale"]]),
    ("per_tensor", [["a.weight"], ["a.bias"], ["b.scale"]]),
])
def test_sums_what_the_definition_says(dtype, strategy, parts):
    arrays = gradients(dtype)
    clipped = clip(arrays, 0.7, strategy=strategy)
    for name, expected in reference(arrays, parts, [0.7] * len(parts)).items():
        assert clipped.sum[name].dtype == np.float64
        assert clipped.sum[name].shape == expected.shape
        np.testing.assert_allclose(clipped.sum[name], expected, rtol=1e-12, atol=1e-13)
    assert clipped.norms.shape == clipped.scales.shape == (20, len(parts))
    assert (clipped.norms * clipped.scales <= 0.7).all()
    assert clipped.zeroed == []


def test_groups_and_bounds_by_name():
    arrays = gradients()
    groups = {"a.bias": "small", "b.scale": "small"}
    clipped = clip(arrays, {"a": 1.0, "small": 0.1}, strategy="per_group", groups=groups)
    assert clipped.parts == ["a", "small"]
    expected = reference(arrays, [["a.weight"], ["a.bias", "b.scale"]], [1.0, 0.1])
    np.testing.assert_allclose(clipped.sum["a.bias"], expected["a.bias"], rtol=1e-12, atol=1e-13)
    hybrid = clip(arrays, {"a": 1.0, "small": 0.1}, strategy="hybrid", flat_norm=0.5, groups=groups)
    whole = np.sqrt(np.square(hybrid.norms * hybrid.scales).sum(1))
    assert (whole <= 0.5 * (1 + 1e-15)).all() and (whole > 0.49).all()


def test_depends_on_neither_microbatch_nor_threads():
    arrays = gradients(np.float32, records=200)
    expected = clip(arrays, 1.0, strategy="per_layer")
    for options in ({"max_microbatch": 3}, {"threads": 2}):
        other = clip(arrays, 1.0, strategy="per_layer", **options)
        for name in arrays:
            np.testing.assert_array_equal(other.sum[name], expected.sum[name])


def test_nonfinite_aborts_or_is_left_out():
    arrays = gradients()
    arrays["a.bias"][4, 2] = np.inf
    error = refused(arrays, 1.0)
    assert error.code == "INVALID_GRADIENT"
    assert "a.bias" in error.sentence and "record 4" in error.sentence
    clipped = clip(arrays, 1.0, nonfinite="zero")
    assert clipped.zeroed == [4]
    for array in arrays.values():
        array[4] = 0
    np.testing.assert_array_equal(clipped.sum["a.weight"], clip(arrays, 1.0).sum["a.weight"])


def test_public_modules_are_not_read_and_not_summed():
    arrays = gradients()
    arrays["b.scale"][:] = np.nan
    clipped = clip(arrays, 1.0, strategy="peft_targeted", public_modules=["b"])
    assert set(clipped.sum) == {"a.weight", "a.bias"}


def test_sums_are_views_that_noise_can_be_added_to():
    clipped = clip({"w": np.ones((3, 5))}, 1.0)
    before = clipped.sum["w"].copy()
    clipped.sum["w"][:] += 1
    np.testing.assert_array_equal(clipped.sum["w"], before + 1)
    kept = clipped.sum["w"]
    del clipped
    np.testing.assert_array_equal(kept, before + 1)


def test_takes_read_only_arrays_and_an_empty_batch():
    array = np.ones((3, 5))
    array.flags.writeable = False
    assert clip({"w": array}, 1.0).sum["w"].shape == (5,)
    empty = clip({"w": np.ones((0, 5), np.float32)}, 1.0)
    assert empty.norms.shape == (0, 1) and not empty.sum["w"].any()
    assert clip({}, 1.0).sum == {}


def test_refuses_what_it_would_have_to_copy_or_guess():
    good = np.ones((3, 4))
    for bad in (good.T, good[:, ::2], good.astype(np.float16), good.astype(int), [[1.0]], 1.0,
                np.float64(1), good.astype(np.float32), np.ones((2, 4))):
        assert refused({"w": good, "v": bad}, 1.0).code == "INVALID_GRADIENT"
        assert "tensor v" in refused({"w": good, "v": bad}, 1.0).sentence
    for options in ({"strategy": "per_lyaer"}, {"strategy": "hybrid"}, {"flat_norm": 1.0},
                    {"nonfinite": "skip"}, {"max_microbatch": 0}, {"public_modules": ["u"]},
                    {"groups": {"u": "g"}}):
        assert refused({"w": good}, 1.0, **options).code == "INVALID_DP_CONFIG"
    assert "per_layer" in refused({"w": good}, 1.0, strategy="per_lyaer").sentence
    for norm in (0.0, -1.0, np.nan, np.inf, {"v": 1.0}):
        assert refused({"w": good}, norm).code == "INVALID_DP_CONFIG"
