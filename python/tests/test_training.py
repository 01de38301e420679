"""discreet.train, against the files that it leaves."""

import numpy as np
import pytest
import safetensors.numpy

import discreet

CONFIG = {
    "data": {"format": "digits"},
    "model": {"kind": "softmax"},
    "optimizer": {"rate": 4},
    "security": {"differential_privacy": {
        "accountant": "rdp", "target_epsilon": 30, "target_steps": 12, "declared_size": 1437,
        "effective_batch_size": 128, "noise_multiplier": 1, "clipping": {"norm": 1, "ghost": True}}},
}


def test_returns_the_run_with_claim_model_and_trace(tmp_path):
    seen = []
    run = discreet.train(CONFIG, tmp_path / "r", threads=1, progress=seen.append)
    assert (run.ended, run.steps, run.not_private) == ("completed", 12, [])
    assert 0 <= run.epsilon.lower <= run.epsilon.upper <= 30
    assert [p["step"] for p in seen] == list(range(1, 13))
    assert [line["kind"] for line in run.trace].count("iter") == 12
    expected = safetensors.numpy.load_file(run.directory / "model.safetensors")
    assert run.model.keys() == expected.keys()
    assert all(np.array_equal(run.model[k], expected[k]) for k in expected)


def test_resume_of_a_completed_run_is_the_same(tmp_path):
    first = discreet.train(CONFIG, tmp_path / "r")
    again = discreet.train(CONFIG, tmp_path / "r", resume=True, threads=2)
    assert again.epsilon == first.epsilon
    assert again.trace == first.trace


def test_refusals_are_errors_with_a_code(tmp_path):
    with pytest.raises(discreet.Error) as refused:
        discreet.train(CONFIG, tmp_path / "r", settings={"target_epsilon": 0.01})
    assert refused.value.code == "PRIVACY_BUDGET_EXCEEDED"
    with pytest.raises(discreet.Error) as refused:
        discreet.train(CONFIG, tmp_path / "r", on_bad_row="guess")
    assert refused.value.code == "INVALID_INPUT"
