"""The values of a saved state, read by cbor2."""

import hashlib

import cbor2
import numpy as np
import pytest

import discreet

STEPS = 3
KEYS = {"target_epsilon": 6, "target_delta": 1e-6, "target_steps": 40, "declared_size": 1000, "effective_batch_size": 10,
        "noise_multiplier": 1.5, "safety_budget_reserve": 0.25, "mode": "dynamic_projection", "gradient_accumulation_steps": 2,
        "clipping": {"strategy": "per_layer", "norm": 0.8}, "secure": False, "seed": 3}
LAYOUT = {"a.weight": (3, 3), "a.bias": (3,), "b": (4,)}
PARTS = {"a": ["a.weight", "a.bias"], "b": ["b"]}


def microbatch(seed):
    draw = np.random.default_rng(seed)
    return {name: draw.normal(size=(5, *shape)) for name, shape in LAYOUT.items()}


def run(**keys):
    """A mechanism after three steps and half of the fourth, and what its steps reported."""
    m = discreet.Mechanism({"security": {"differential_privacy": KEYS | keys}}, LAYOUT)
    steps = [m.apply([microbatch(2 * t), microbatch(2 * t + 1)]) for t in range(STEPS)]
    m.accumulate(microbatch(99))
    return m, steps


@pytest.fixture(scope="module")
def saved():
    m, steps = run()
    return m, steps, cbor2.loads(m.save())


def test_it_is_canonical_cbor_of_exactly_these_fields(saved):
    m, _, state = saved
    assert cbor2.dumps(state, canonical=True) == m.save()
    assert set(state) == {
        "format", "specification", "config_hash", "layout_hash", "config", "t", "t_micro_counter", "cumulative_epsilon",
        "projected_final_epsilon", "accountant_state", "rng_dp_state", "clip_norm_state", "compression_state",
        "accumulation_state", "allocation_map_snapshot", "per_module_snapshot", "sigma_schedule_cache", "reserved_until",
        "reserved_event", "sampling_rate_history_hash_chain", "sigma_map_history_hash_chain"}


def test_nothing_of_a_step_is_left_after_it():
    m = discreet.Mechanism({"security": {"differential_privacy": KEYS}}, LAYOUT)
    m.apply([microbatch(0), microbatch(1)])
    state = cbor2.loads(m.save())
    assert state["accumulation_state"] is state["clip_norm_state"] is state["compression_state"] is None
    digests = sum(len(value) for key, value in state.items() if key.endswith(("_hash", "_chain")))
    events = len(state["accountant_state"]) + len(state["reserved_event"])
    assert sum(len(value) for value in state.values() if isinstance(value, bytes)) == digests + events


def test_counters_and_epsilon(saved):
    m, steps, state = saved
    assert (state["t"], state["t_micro_counter"]) == (STEPS, 2 * STEPS + 1)
    assert type(state["cumulative_epsilon"]) is float
    assert state["cumulative_epsilon"] == m.spent.epsilon.upper == steps[-1].epsilon.after.upper > 0
    assert state["projected_final_epsilon"] == steps[-1].metrics["projected_final_epsilon"] > state["cumulative_epsilon"]


def test_snapshot_of_the_configuration(saved):
    m, _, state = saved
    assert state["config"] == {
        "accountant": "pld", "clipping": "per_layer", "mode": "dynamic_projection", "noise_multiplier": 1.5,
        "safety_budget_reserve": 0.25, "target_epsilon": 6.0, "target_delta": 1e-6, "target_steps": 40}
    assert state["config_hash"].hex() == m.config.hash


def test_allocation_and_modules(saved):
    m, _, state = saved
    bound = 0.8 / np.sqrt(2)
    assert state["allocation_map_snapshot"] == m.trace_header()["allocation_map"]
    assert state["allocation_map_snapshot"] == {part: pytest.approx([np.sqrt(2), bound], rel=1e-12) for part in PARTS}
    assert state["per_module_snapshot"] == {name: part for part, names in PARTS.items() for name in names}


def test_accumulated_sum(saved):
    _, _, state = saved
    partial, arrays = state["accumulation_state"], microbatch(99)
    assert partial["microbatches"] == 1
    expected = []
    for names in PARTS.values():
        flat = np.concatenate([arrays[name].reshape(5, -1) for name in names], axis=1)
        expected.append(np.minimum(1, 0.8 / np.sqrt(2) / np.linalg.norm(flat, axis=1)) @ flat)
    np.testing.assert_allclose(np.frombuffer(partial["sum"], "<f8"), np.concatenate(expected), rtol=1e-7)


def test_sigma_schedule(saved):
    _, steps, state = saved
    pieces = state["sigma_schedule_cache"]["pieces"]
    sigmas = [[sigma for begin, sigma in pieces if begin <= t][-1] for t in range(STEPS)]
    assert sigmas == [step.metrics["noise_scale_sigma"] for step in steps] and sigmas[0] != 1.5


def test_hash_chains_of_rates_and_sigmas(saved):
    _, steps, state = saved
    multipliers = [state["allocation_map_snapshot"][part][0] for part in PARTS]

    def chain(values):
        link = bytes(32)
        for value in values:
            link = hashlib.sha256(link + cbor2.dumps(value, canonical=True)).digest()
        return link

    assert state["sampling_rate_history_hash_chain"] == chain([0.01] * STEPS)
    assert state["sigma_map_history_hash_chain"] == chain(
        [[k * step.metrics["noise_scale_sigma"] for k in multipliers] for step in steps])


def test_offset_of_the_noise(saved):
    # Two draws of a tensor take one block: 5 of a.weight, 2 of a.bias, 2 of b.
    assert saved[2]["rng_dp_state"] == STEPS * 9


def test_adapted_bounds_and_their_counts(saved):
    assert saved[2]["clip_norm_state"] is None
    m, steps = run(clipping={"strategy": "per_layer", "norm": "adaptive"}, mode="fixed")
    state = cbor2.loads(m.save())
    bounds = cbor2.loads(state["clip_norm_state"])
    assert bounds["updates"] == STEPS and len(bounds["median"]) == len(bounds["mad"]) == len(PARTS)
    assert state["rng_dp_state"] == STEPS * (9 + len(PARTS))  # two counts per part
    for event, _ in cbor2.loads(state["accountant_state"])["events"]:
        assert event["mechanism"]["adaptation"] == {"counts": 2 * len(PARTS), "deviation": 10}
    assert steps[-1].metrics["delta_eps"] > 0 and m.replay != run(mode="fixed")[0].replay


@pytest.mark.parametrize("name", ["pld", "moments", "rdp", "f_dp", "gdp"])
def test_the_state_of_the_accountant_gives_the_same_epsilon(name):
    m, _ = run(accountant=name)
    state = cbor2.loads(m.save())["accountant_state"]
    alone = discreet.Accountant.restore(name, state)
    assert cbor2.loads(state)["accountant"] == name
    assert alone.epsilon(m.trace_header()["accounted_delta"]).epsilon == m.spent.epsilon
    assert m.trace_end()["accountant_summary_hash"] == hashlib.sha256(state).hexdigest()
