"""Random architectures: none is accepted whose clipped sum one record moves by more than its bound. See README.md."""

import pytest

torch = pytest.importorskip("torch")

import falsify  # noqa: E402

# Seeds of the short run, and of the long one. Honest models that are rejected are listed, not hidden.
SHORT, LONG = range(80), range(80, 5080)


def verdict(lines):
    wrong = falsify.failures(lines)
    return falsify.summary(lines) + "".join(
        f"\n{x['key']} [{x['planted'] or 'honest'}]: {x['crashed'] or x['rejected'] or x['faults']}" for x in wrong)


def test_no_random_architecture_is_accepted_and_moves_by_more_than_its_bound(tmp_path):
    lines = falsify.run(list(SHORT), 1, tmp_path / "verdicts.jsonl")
    assert len(lines) == len(SHORT)
    assert not falsify.failures(lines), verdict(lines)


@pytest.mark.slow
def test_nor_is_one_of_five_thousand(tmp_path):
    lines = falsify.run(list(LONG), 2, tmp_path / "verdicts.jsonl")
    print(falsify.summary(lines))
    assert len(lines) == len(LONG)
    assert not falsify.failures(lines), verdict(lines)
