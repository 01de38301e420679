"""Every coupling and memory of the zoo is rejected; every honest model is accepted and exact."""

import pytest

torch = pytest.importorskip("torch")

import zoo_couplings  # noqa: E402
import zoo_honest  # noqa: E402
import zoo_memories  # noqa: E402
from oracle import judge, rejection  # noqa: E402

torch.set_num_threads(1)
RECORDS = 8

COUPLED = {case.name: case for case in zoo_couplings.cases() + zoo_memories.cases()}
HONEST = {case.name: case for case in zoo_honest.cases()}


def test_the_zoo_is_as_large_as_it_says():
    assert len(COUPLED) >= 60 and len(HONEST) >= 60


@pytest.mark.parametrize("name", COUPLED)
def test_a_model_whose_records_meet_is_rejected(name):
    verdict = rejection(COUPLED[name], RECORDS)
    assert not verdict.crashed, verdict.crashed
    assert verdict.rejected, "accepted, and a step was released"


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_model_is_accepted_and_exact(name):
    verdict = judge(HONEST[name], RECORDS, out=RECORDS - 1)
    assert not verdict.crashed, verdict.crashed
    assert not verdict.rejected, verdict.rejected
    assert not verdict.faults, "; ".join(verdict.faults)
