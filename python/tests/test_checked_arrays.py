"""The core checks every array it is given: type, shape, order, device, writability. A wrong one is an error, never a crash."""

import pathlib

import numpy
import pytest

import discreet
from discreet import _core

torch = pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).parents[2]
RECORDS, POSITIONS, INPUTS, OUTPUTS, PARTS = 4, 3, 5, 2, 2


def session():
    yaml = ("security: {differential_privacy: {declared_size: 1000, effective_batch_size: 8, noise_multiplier: 1.0, "
            "clipping: {norm: 1.0}, target_epsilon: 8, target_delta: 1.0e-5, target_steps: 10}}\n"
            "run: {compute_dtype: float32}")
    return _core.MechanismSession(yaml.encode(), "test", [], [("a.weight", [6], "a", "a", True, "")], None, None, 1)


def real(*shape, dtype=torch.float32):
    return torch.ones(*shape, dtype=dtype)


def double(*shape):
    return real(*shape, dtype=torch.float64)


def calls():
    """Of every function that takes arrays: how it is called, its arrays, and which of them it writes."""
    s = session()
    return {
        "add_outer_squares": (lambda squares, a, g: _core.add_outer_squares(squares, a, g, True),
                              [double(RECORDS), real(RECORDS, POSITIONS, INPUTS), real(RECORDS, POSITIONS, OUTPUTS)], [0]),
        "add_placed_squares": (_core.add_placed_squares,
                               [double(RECORDS), real(RECORDS, POSITIONS, INPUTS),
                                torch.zeros(RECORDS, POSITIONS, dtype=torch.int64)], [0]),
        "add_row_squares": (_core.add_row_squares, [double(RECORDS), real(RECORDS, POSITIONS, INPUTS)], [0]),
        "add_outer_sum": (lambda total, weights, a, g: _core.add_outer_sum(total, weights, a, g, False),
                          [double(OUTPUTS, INPUTS), double(RECORDS), real(RECORDS, POSITIONS, INPUTS),
                           real(RECORDS, POSITIONS, OUTPUTS)], [0]),
        "add_placed_sum": (lambda total, weights, g, places: _core.add_placed_sum(total, weights, g, places, 2),
                           [double(2, INPUTS), double(RECORDS), real(RECORDS, POSITIONS, INPUTS),
                            torch.zeros(RECORDS, POSITIONS, dtype=torch.int64)], [0]),
        "norms_of": (lambda squares, norms: _core.norms_of(squares, norms, 1.0),
                     [double(PARTS, RECORDS), double(RECORDS, PARTS)], [1]),
        "weights_of": (lambda norms, scales, weights: _core.weights_of(norms, scales, weights, 1.0, False),
                       [double(RECORDS, PARTS), double(RECORDS, PARTS), double(PARTS, RECORDS)], [2]),
        "clipped_weights": (lambda squares, weights: _core.clipped_weights(squares, weights, 1.0, 1.0, 1.0, False),
                            [double(RECORDS), double(RECORDS)], [1]),
        "take_norms": (lambda norms, scales: s.take_norms(norms, scales, RECORDS, None),
                       [double(RECORDS, 1), double(RECORDS, 1)], [1]),
        "release_into": (lambda average, rounded: s.release_into([average], [rounded], False), [double(6), real(6)], [0, 1]),
    }


REJECTED = (TypeError, discreet.Error, BufferError, RuntimeError)


@pytest.mark.parametrize("name", list(calls()))
def test_right_arrays_are_used_in_place(name):
    call, arrays, written = calls()[name]
    if name == "release_into":
        calls_of_session = call.__closure__[0].cell_contents
        calls_of_session.take_norms(double(RECORDS, 1), double(RECORDS, 1), RECORDS, None)
    before = [array.clone() for array in arrays]
    call(*arrays)
    for i, (array, was) in enumerate(zip(arrays, before)):
        if i in written and name not in ("norms_of", "take_norms", "clipped_weights", "weights_of"):
            assert not torch.equal(array, was), i
        if i not in written:
            assert torch.equal(array, was), i


def wrong(array, is_written):
    """Arrays that are almost the right one."""
    # Precision: what takes float32 also takes float64, but not beside a float32.
    yield "float16", array.to(torch.float16)
    yield "int32", array.to(torch.int32)
    yield "complex64", array.to(torch.complex64)
    yield "meta", array.to("meta")
    yield "sparse", array.to_sparse()
    yield "one dimension more", array.unsqueeze(-1).expand(*array.shape, 2).contiguous()
    yield "no dimension", array.flatten()[0]
    yield "one record more", torch.cat([array, array[:1]])
    yield "one record less", array[:-1].contiguous()
    yield "too narrow", array[..., :-1].contiguous()
    yield "strided", torch.stack([array, array], -1)[..., 0]
    yield "reversed", numpy.ascontiguousarray(array.numpy())[::-1]
    if is_written:
        read_only = array.numpy().copy()
        read_only.flags.writeable = False
        yield "read-only", read_only
    yield "address", array.data_ptr()
    yield "list", array.tolist()
    yield "bytes", array.numpy().tobytes()
    yield "None", None


# What a function may take all the same: other lengths of what nothing else fixes, and no places at all.
ALLOWED = {("add_row_squares", 1, "one dimension more"), ("add_row_squares", 1, "too narrow"),
           ("add_outer_squares", 1, "too narrow"), ("add_outer_squares", 2, "too narrow"),
           ("add_placed_squares", 1, "too narrow"), ("add_placed_squares", 2, "None"), ("add_placed_sum", 3, "None")}


@pytest.mark.parametrize("name", list(calls()))
def test_wrong_arrays_are_rejected(name):
    places = len(calls()[name][1])
    for i in range(places):
        kinds = [kind for kind, _ in wrong(calls()[name][1][i], i in calls()[name][2])]
        for kind in kinds:
            call, arrays, written = calls()[name]
            bad = dict(wrong(arrays[i], i in written))[kind]
            given = [*arrays[:i], bad, *arrays[i + 1:]]
            before = [array.clone() for array in arrays]
            if (name, i, kind) in ALLOWED:
                call(*given)
                continue
            with pytest.raises(REJECTED):
                call(*given)
                pytest.fail(f"{name}: argument {i} may be {kind}")
            assert all(torch.equal(array, was) for array, was in zip(arrays, before)), (i, kind)


def test_factors_of_two_precisions_are_rejected():
    squares, a, g = double(RECORDS), real(RECORDS, POSITIONS, INPUTS), double(RECORDS, POSITIONS, OUTPUTS)
    with pytest.raises(discreet.Error, match="one precision"):
        _core.add_outer_squares(squares, a, g, False)


def test_more_records_than_rows_are_rejected():
    with pytest.raises(discreet.Error, match="5 records, found 4 rows"):
        session().take_norms(double(4, 1), double(4, 1), 5, None)


def test_what_is_released_is_of_float64_and_rounded_to_float32():
    s = session()
    s.take_norms(double(RECORDS, 1), double(RECORDS, 1), RECORDS, None)
    for averages, rounded in (([real(6)], []), ([double(6)], [double(6)])):
        with pytest.raises(discreet.Error, match="float64 averages"):
            s.release_into(averages, rounded, False)
    for averages in ([], [double(6), double(6)], [double(7)], [None]):
        with pytest.raises(discreet.Error):
            s.release_into(averages, [], False)


def test_no_address_crosses_the_border():
    found = [f"{path.name}: {line.strip()}" for path in sorted((ROOT / "python/discreet").rglob("*.py"))
             for line in path.read_text("utf-8").splitlines() if "data_ptr" in line]
    # Compared with others to find one record twice, never followed.
    assert found == ["dataset.py: return first.data_ptr() + rows * (first.stride(0) * first.element_size())"]
    for path in (ROOT / "python/src").iterdir():
        assert "uintptr_t" not in path.read_text("utf-8"), path
