"""Hugging Face's architectures are accepted and exact, or rejected with a sentence that says why."""

import os

import pytest

torch = pytest.importorskip("torch")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("transformers")

import zoo_huggingface  # noqa: E402
from oracle import judge  # noqa: E402

torch.set_num_threads(1)
CASES = {case.name: case for case in zoo_huggingface.cases()}
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", CASES)
def test_it_is_exact_or_rejected(name):
    verdict = judge(CASES[name], 6)
    assert not verdict.crashed, verdict.crashed
    if name in zoo_huggingface.REJECTED:
        assert verdict.rejected and zoo_huggingface.REJECTED[name] in verdict.rejected
        return
    assert not verdict.rejected, verdict.rejected
    assert not verdict.faults, "; ".join(verdict.faults)


def test_most_are_accepted():
    assert len(CASES) - len(zoo_huggingface.REJECTED) >= 30
