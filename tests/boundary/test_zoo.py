"""Every coupling and memory of the zoo is rejected; every honest model is accepted and exact."""

import pytest

torch = pytest.importorskip("torch")

import zoo_apart  # noqa: E402
import zoo_couplings  # noqa: E402
import zoo_honest  # noqa: E402
import zoo_memories  # noqa: E402
from oracle import judge, rejection  # noqa: E402

torch.set_num_threads(1)
RECORDS = 8

COUPLED = {case.name: case for case in zoo_couplings.cases() + zoo_memories.cases()}
HONEST = {case.name: case for case in zoo_honest.cases()}
# A module without a rule runs every record alone, so that these mix nothing there: they may be accepted, and are then exact.
HARMLESS = {f"{name}_below_root" for name in zoo_couplings.harmless_below_root}


def slow_below_root(names):
    """Below a root most of them are the same check again: make test-slow has those."""
    plain = [name for name in names if not name.endswith("_below_root") or name.removesuffix("_below_root") not in names]
    rooted = [name for name in names if name not in plain]
    return plain + rooted[::8] + [pytest.param(name, marks=pytest.mark.slow) for k, name in enumerate(rooted) if k % 8]


def test_the_zoo_is_as_large_as_it_says():
    assert len(COUPLED) >= 60 and len(HONEST) >= 60


@pytest.mark.parametrize("name", slow_below_root(COUPLED))
def test_a_model_whose_records_meet_is_rejected(name):
    verdict = rejection(COUPLED[name], COUPLED[name].size or RECORDS)
    assert not verdict.crashed, verdict.crashed
    if name in HARMLESS and not verdict.rejected:
        verdict = judge(COUPLED[name], COUPLED[name].size or RECORDS)
        assert not verdict.faults, "; ".join(verdict.faults)
        return
    assert verdict.rejected, "accepted, and a step was released"


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_model_is_accepted_and_exact(name):
    verdict = judge(HONEST[name], RECORDS)
    assert not verdict.crashed, verdict.crashed
    assert not verdict.rejected, verdict.rejected
    assert not verdict.faults, "; ".join(verdict.faults)


@pytest.mark.parametrize("case", [case for case in zoo_apart.cases() if case.collate is zoo_apart.inputs.default_collate],
                         ids=lambda case: case.name)
def test_an_honest_model_is_exact_for_a_record_that_is_alone_in_its_batch(case):
    verdict = judge(case, 2)
    assert verdict.accepted and not verdict.faults, verdict
