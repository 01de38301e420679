"""Every key of security.differential_privacy that acts in a step, seen in what the step does."""

import subprocess
import sys

import cbor2
import numpy as np
import pytest

import discreet
from discreet import events
from discreet.mechanism import Tensor

BASE = {"target_epsilon": 8, "declared_size": 1000, "effective_batch_size": 10, "secure": False, "seed": 5}
LAYOUT = {"a.weight": (4, 3), "a.bias": (4,), "b.weight": Tensor((6,), group="a"), "c": (5,)}
# The parts of a record under each strategy, in the order of allocation_map.
FLAT = [["a.weight", "a.bias", "b.weight", "c"]]
PARTS = {"per_sample": FLAT, "adaptive": FLAT,
         "per_layer": [["a.weight", "a.bias"], ["b.weight"], ["c"]],
         "per_group": [["a.weight", "a.bias", "b.weight"], ["c"]],
         "per_tensor": [["a.weight"], ["a.bias"], ["b.weight"], ["c"]]}


def mechanism(layout=LAYOUT, **keys):
    return discreet.Mechanism({"security": {"differential_privacy": BASE | keys}, "run": {"compute_dtype": "float64"}}, layout)


def gradients(layout=LAYOUT, records=10, seed=0):
    draw = np.random.default_rng(seed)
    shapes = {name: getattr(shape, "shape", shape) for name, shape in layout.items()}
    # Norms from far below to far above 1.
    scales = np.exp(draw.uniform(-4, 1, size=records))
    return {name: np.stack([s * draw.normal(size=shape) for s in scales]) for name, shape in shapes.items()}


def norms_of(arrays, names):
    return np.sqrt(sum(np.square(arrays[name]).reshape(len(arrays[name]), -1).sum(1) for name in names))


def clipped_average(arrays, parts, bounds):
    out = {}
    for names, bound in zip(parts, bounds):
        scales = np.minimum(1, bound / (norms_of(arrays, names) + 1e-8))
        assert 0 < (scales < 1).sum() < len(scales)
        out |= {name: np.tensordot(scales, arrays[name], axes=1) / 10 for name in names}
    return out


def close(step, expected):
    assert step.gradients.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(step.gradients[name], value, rtol=1e-12, atol=1e-14)


def bounds_of(m):
    return [bound for _, bound in m.trace_header()["allocation_map"].values()]


def silent(layout=LAYOUT, **keys):
    return mechanism(layout, debug=True, noise_multiplier=0, **keys)


def spent_by(m, steps=1):
    for t in range(steps):
        m.apply(gradients(seed=t))
    return m.spent.epsilon.upper


def exact(noise_multiplier, steps=1, rate=0.01, delta=1e-5):
    return discreet.account(sampling_rate=rate, noise_multiplier=noise_multiplier, steps=steps, delta=delta).epsilon.upper


def is_nearly(spent, bound):
    """A mechanism also charges the rounding of its sums."""
    return bound <= spent <= bound * (1 + 1e-4)


@pytest.mark.parametrize("strategy", PARTS)
def test_clipping_strategy_and_norm(strategy):
    m, parts = silent(clipping={"strategy": strategy, "norm": 0.7}), PARTS[strategy]
    np.testing.assert_allclose(bounds_of(m), 0.7 / np.sqrt(len(parts)), rtol=1e-12)
    assert m.trace_header()["clipping_strategy"] == strategy
    close(m.apply(gradients()), clipped_average(gradients(), parts, bounds_of(m)))


def test_hybrid_keeps_each_group_and_the_whole_within_their_bounds():
    m = silent(clipping={"strategy": "hybrid", "norm": 0.7}, clip_norm_map={"a": 0.5, "c": 0.6})
    arrays, (first, second) = gradients(), PARTS["per_group"]
    scales = [np.minimum(1, bound / norms_of(arrays, names)) for names, bound in ((first, 0.5), (second, 0.6))]
    whole = np.hypot(*(s * norms_of(arrays, names) for s, names in zip(scales, (first, second))))
    assert (whole > 0.7).any()
    flat = np.minimum(1, 0.7 / whole)
    expected = {name: np.tensordot(s * flat, arrays[name], axes=1) / 10
                for s, names in zip(scales, (first, second)) for name in names}
    for name, value in m.apply(arrays).gradients.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-7)
    # A record spends its flat bound where the noise is least: on c alone, not on both groups.
    uneven = mechanism(clipping={"strategy": "hybrid"}, noise={"per_layer_multiplier": {"c": 0.5}})
    assert is_nearly(spent_by(uneven), exact(0.5))


def test_ghost_clips_as_per_sample_does():
    draw = np.random.default_rng(1)
    X = draw.uniform(-1, 1, size=(200, 3))
    how = {"bounds": (-1, 1), "classes": [0, 1], "target_epsilon": 8, "target_delta": 1e-5, "epochs": 2, "hidden": [6]}
    keys = {"debug": True, "noise_multiplier": 0, "secure": False, "clipping.norm": 0.1}
    ghost, plain = (discreet.train(X, (X[:, 0] > 0).astype(int), settings=keys | {"clipping.strategy": strategy}, **how)
                    for strategy in ("ghost", "per_sample"))
    assert ghost.trace[0]["clipping_strategy"] == "ghost"
    for name in plain.model:
        np.testing.assert_allclose(ghost.model[name], plain.model[name], rtol=1e-4, atol=1e-6)


def test_peft_targeted_trains_and_clips_the_adapters():
    layout = {"w": Tensor((4, 3), trainable=False), "w.down": Tensor((2, 3), adapter="w"), "w.up": Tensor((4, 2), adapter="w")}
    step = silent(layout, clipping={"strategy": "peft_targeted", "norm": 0.7}).apply(gradients(layout))
    close(step, clipped_average(gradients(layout), [["w.down", "w.up"]], [0.7]))


@pytest.mark.parametrize("clipping", [
    {"strategy": "adaptive", "norm": 0.7}, {"norm": "adaptive", "adaptive": {"initial": 0.7}}])
def test_an_adaptive_bound_follows_the_norms(clipping):
    # Over 200 records the noise on the counts moves the bound by about 0.2 * 10 / 200, relative.
    m, arrays = mechanism(clipping=clipping, effective_batch_size=200, target_epsilon=50), gradients(records=200)
    norms, median, mad = norms_of(arrays, FLAT[0]), 0.7 * 2 / 3, 0.7 / 3
    for _ in range(4):
        m.apply(arrays)
        median, mad = (median * np.exp(-0.2 * np.mean((norms <= median) - 0.5)),
                       mad * np.exp(-0.2 * np.mean((abs(norms - median) <= mad) - 0.5)))
    state = cbor2.loads(cbor2.loads(m.save())["clip_norm_state"])
    assert median > 0.55 and state["median"] == pytest.approx([median], rel=0.12)  # 6 deviations of four counts
    assert mad > 0.25 and state["mad"] == pytest.approx([mad], rel=0.12)


def test_adaptive_accounting():
    def spent(**keys):
        m = mechanism(clipping={"norm": "adaptive"}, **keys)
        return spent_by(m), m.not_private

    def heuristic(**keys):
        return spent(privacy={"adaptive_accounting": "heuristic"}, **keys)

    conservative, _ = spent()
    # Both centred counts have sensitivity 1/2 and deviation 10.
    assert is_nearly(conservative, exact((1 + 2 * (0.5 / 10) ** 2) ** -0.5)) and conservative > exact(1) * 1.005
    free, stamps = heuristic(allow_nonprivate_adaptation=True)
    assert free < conservative and free == pytest.approx(exact(1), rel=2e-3)
    assert any("heuristic" in stamp for stamp in stamps)
    for keys in ({}, {"allow_nonprivate_adaptation": True, "regulated": True, "secure": True}):
        with pytest.raises(discreet.Error, match="heuristic"):
            heuristic(**keys)


def test_clip_norm_map():
    m, parts = silent(clipping={"strategy": "per_group"}, clip_norm_map={"a": 0.3, "c": 0.4}), PARTS["per_group"]
    assert bounds_of(m) == [0.3, 0.4]
    close(m.apply(gradients()), clipped_average(gradients(), parts, [0.3, 0.4]))


def test_sensitivity_map():
    m = silent(clipping={"strategy": "per_group", "norm": 0.5}, sensitivity_map={"a": 3, "c": 4})
    assert bounds_of(m) == pytest.approx([0.3, 0.4], rel=1e-12)
    close(m.apply(gradients()), clipped_average(gradients(), PARTS["per_group"], bounds_of(m)))


def test_per_layer_multiplier_and_clip_norm_map_set_the_noise_of_each_part():
    layout = {"a": (150, 150), "b": (150, 150)}
    m = mechanism(layout, clipping={"strategy": "per_layer"}, clip_norm_map={"a": 0.3, "b": 4}, noise_multiplier=0.8,
                  noise={"per_layer_multiplier": {"a": 2}})
    step = m.apply({name: np.zeros((1, *shape)) for name, shape in layout.items()})
    sigma = 0.8 * np.sqrt(2)
    # 22500 draws: the relative deviation of an estimate is 1/212; 6 of them.
    assert step.gradients["a"].std() == pytest.approx(2 * sigma * 0.3 / 10, rel=0.029)
    assert step.gradients["b"].std() == pytest.approx(sigma * 4 / 10, rel=0.029)
    together = (1 / (2 * sigma) ** 2 + 1 / sigma ** 2) ** -0.5
    assert step.metrics["effective_heterogeneous_multiplier"] == pytest.approx(together, rel=1e-9)
    assert is_nearly(m.spent.epsilon.upper, exact(together))


@pytest.mark.parametrize("mode", ["uniform", "layer_wise"])
def test_privacy_allocation(mode):
    m = mechanism(clipping={"strategy": "per_tensor"}, privacy_allocation=mode, clip_norm_map=dict(
        zip(LAYOUT, (0.1, 0.2, 0.3, 0.4))))
    allocation = m.trace_header()["allocation_map"]
    multipliers, bounds = np.array([allocation[name] for name in LAYOUT]).T
    weights = multipliers**2 * (bounds * np.sqrt([12, 4, 6, 5]) if mode == "layer_wise" else 1)
    np.testing.assert_allclose(weights, weights[0], rtol=1e-9)
    assert np.sum(multipliers**-2) == pytest.approx(1, rel=1e-9)
    assert m.apply(gradients()).metrics["privacy_allocation_mode"] == mode == m.trace_header()["privacy_allocation_mode"]
    assert is_nearly(m.spent.epsilon.upper, exact(1))


def follow(**keys):
    m = mechanism(target_steps=8, **keys)
    done = [m.apply(gradients(seed=t)) for t in range(8)]
    reviewed = keys.get("mode") in ("budget_adaptive", "dynamic_projection")
    assert [step.metrics["scaling_law_confidence"] for step in done] == [t / 8 if reviewed else 1 for t in range(8)]
    return [step.metrics["noise_scale_sigma"] for step in done], done[-1].epsilon.after.upper


def test_mode_fixed_and_noise_multiplier():
    sigmas, spent = follow(noise_multiplier=0.9)
    assert sigmas == [0.9] * 8 and is_nearly(spent, exact(0.9, 8))


def test_mode_step_decay():
    sigmas, spent = follow(mode="step_decay", noise_multiplier=2, decay={"factor": 0.7, "every": 4})
    assert sigmas == [2.0] * 4 + [2 * 0.7] * 4
    steps = discreet.PldAccountant()
    for sigma in (2, 2 * 0.7):
        steps.add(sampling_rate=0.01, noise_multiplier=sigma, steps=4)
    assert is_nearly(spent, steps.epsilon(1e-5).epsilon.upper)


def test_mode_meet_exactly_at_target_steps():
    sigmas, spent = follow(mode="meet_exactly_at_target_steps", target_epsilon=1, noise_multiplier=3)
    assert len(set(sigmas)) == 1 and 1 - 1e-4 < spent <= 1
    assert is_nearly(spent, exact(sigmas[0], 8))


def test_mode_budget_adaptive():
    sigmas, spent = follow(mode="budget_adaptive", target_epsilon=1, noise_multiplier=3)
    assert len(set(sigmas)) > 5 and 1 - 1e-4 < spent <= 1  # a review before every step
    wanted = discreet.calibrate(target_epsilon=1, delta=1e-5, sampling_rate=0.01, steps=8).noise_multiplier
    np.testing.assert_allclose(sigmas, wanted, rtol=1e-4)


def test_mode_dynamic_projection():
    wanted = discreet.calibrate(target_epsilon=1, delta=1e-5, sampling_rate=0.01, steps=8).noise_multiplier
    sigmas, spent = follow(mode="dynamic_projection", target_epsilon=1, noise_multiplier=0.5)
    assert sigmas[0] == pytest.approx(wanted, rel=1e-4) and 0.99 < spent <= 1  # too little noise: raised at once
    sigmas, spent = follow(mode="dynamic_projection", target_epsilon=1, noise_multiplier=1)
    assert sigmas[0] == pytest.approx(np.sqrt(wanted), rel=1e-4) and spent <= 1  # too much: lowered by halves
    assert sigmas == sorted(sigmas, reverse=True) and len(set(sigmas)) > 5


@pytest.mark.parametrize("phase, sigma", [("warmup", 2), ("main", 1), ("cooldown", 3)])
def test_training_phase(phase, sigma):
    m = mechanism(training_phase=phase, phases={"warmup": {"noise_multiplier": 2}, "cooldown": {"noise_multiplier": 3}})
    assert m.apply(gradients()).metrics["noise_scale_sigma"] == sigma and is_nearly(m.spent.epsilon.upper, exact(sigma))


@pytest.mark.parametrize("name, event", [
    ("gaussian", events.Gaussian(noise_multiplier=1)), ("laplace", events.Laplace(scale=0.5**0.5))])
def test_mechanism_draws_and_accounts_the_named_noise(name, event):
    m = mechanism({"w": (40000,)}, mechanism=name, accountant="rdp")
    noise = m.apply({"w": np.zeros((1, 40000))}).gradients["w"] * 10
    kurtosis = np.mean(noise**4) / np.mean(noise**2) ** 2
    assert noise.std() == pytest.approx(1, rel=0.03)  # noise_multiplier is a deviation, of any noise
    assert kurtosis == pytest.approx(3 if name == "gaussian" else 6, abs=0.6 if name == "laplace" else 0.15)
    accountant = discreet.Accountant("rdp").compose(events.Event(event, events.Poisson(rate=0.01), adjacency="add_remove"))
    assert is_nearly(m.spent.epsilon.upper, accountant.epsilon(1e-5).epsilon.upper)


@pytest.mark.parametrize("name", ["discrete_gaussian", "rounded_gaussian", "skellam"])
def test_discrete_mechanisms_release_multiples_of_their_grid(name):
    m = mechanism({"w": (4000,)}, mechanism=name, accountant="rdp", noise={"discrete": 2.0**-6})
    noise = m.apply({"w": np.zeros((1, 4000))}).gradients["w"] * 10 * 2**6
    np.testing.assert_allclose(noise, np.round(noise), atol=1e-9)
    assert noise.std() == pytest.approx(2**6, rel=0.07) and len(np.unique(noise)) > 100


SAMPLERS = {
    "POISSON_V1": ("POISSON", events.Poisson(rate=0.01)),
    "TRUNCATED_POISSON_V1": ("POISSON", events.TruncatedPoisson(rate=0.01, batch=12, population=1000)),
    "SHUFFLE_WITHOUT_REPLACEMENT_FIXED_SIZE_V1": ("SHUFFLE_WITHOUT_REPLACEMENT", events.FixedSize(batch=10, population=1000)),
    "SHUFFLE_WITHOUT_REPLACEMENT_BALLS_AND_BINS_V1": ("SHUFFLE_WITHOUT_REPLACEMENT", events.BallsAndBins(batches=100)),
    "SHUFFLE_WITHOUT_REPLACEMENT_EPOCH_V1": ("SHUFFLE_WITHOUT_REPLACEMENT", events.ShuffledEpoch(batches=100)),
    "SEQUENTIAL_V1": ("NONE", events.NoSampling()),
}


@pytest.mark.parametrize("mode", SAMPLERS)
def test_sampling_mode(mode):
    subsampling, law = SAMPLERS[mode]
    m = mechanism(sampling_mode=mode, **({"truncated_batch": 12} if "TRUNCATED" in mode else {}))
    header, sampler = m.trace_header(), m.sampler(1000)
    assert (header["sampling_mode"], header["subsampling"]) == (mode, subsampling)
    batches = [sampler.batch(t) for t in range(200)]
    sizes, epoch = {len(batch) for batch in batches}, np.sort(np.concatenate(batches[:100]))
    assert (sizes == {10}) == (mode.endswith(("FIXED_SIZE_V1", "EPOCH_V1", "SEQUENTIAL_V1")))
    assert (max(sizes) <= 12) == (len(sizes) == 1 or "TRUNCATED" in mode)
    partition = mode.endswith(("BINS_V1", "EPOCH_V1", "SEQUENTIAL_V1"))
    assert np.array_equal(epoch, np.arange(1000)) == partition
    assert all(np.array_equal(batches[t], batches[t + 100]) for t in range(100)) == (mode == "SEQUENTIAL_V1")
    m.apply(gradients())
    event = events.Event(events.Gaussian(noise_multiplier=1), law, adjacency=header["adjacency"])
    assert is_nearly(m.spent.epsilon.upper, discreet.Accountant("pld").compose(event).epsilon(1e-5).epsilon.upper)


@pytest.mark.parametrize("subsampling, mode", [
    ("POISSON", "POISSON_V1"), ("SHUFFLE_WITHOUT_REPLACEMENT", "SHUFFLE_WITHOUT_REPLACEMENT_FIXED_SIZE_V1"),
    ("NONE", "SEQUENTIAL_V1")])
def test_subsampling_selects_a_sampler(subsampling, mode):
    one, other = mechanism(subsampling=subsampling), mechanism(sampling_mode=mode)
    assert one.config.hash == other.config.hash and one.trace_header()["sampling_mode"] == mode
    assert all(np.array_equal(one.sampler(1000).batch(t), other.sampler(1000).batch(t)) for t in range(20))
    assert spent_by(one) == spent_by(other)


@pytest.mark.parametrize("name", ["pld", "moments", "rdp", "f_dp", "gdp"])
def test_accountant(name):
    m = mechanism(accountant=name)
    assert (m.t, m.spent.epsilon.upper, m.spent.accountant) == (0, 0, name) and "sampling_rate: 0.01\n" in m.config.yaml
    spent = spent_by(m, 3)
    event = events.Event(events.Gaussian(noise_multiplier=1), events.Poisson(rate=0.01), adjacency="add_remove")
    own = discreet.Accountant(name).compose(event, 3)
    assert is_nearly(spent, own.epsilon(1e-5).epsilon.upper)
    assert m.spent.accountant == name == m.trace_header()["accountant"] and spent >= exact(1, 3)


def test_accountant_granularity():
    m = mechanism(accountant_granularity="PER_EPOCH")
    # 100 steps are an epoch: committed before its first step, the next one with the 101st.
    spent = [m.apply(gradients(seed=t)).epsilon.after.upper for t in range(101)]
    assert set(spent[:100]) == {spent[0]} and is_nearly(spent[0], exact(1, 100)) and is_nearly(spent[100], exact(1, 200))


def test_log_space_accounting():
    plain, logs = (mechanism(accountant="rdp", log_space_accounting=on) for on in (False, True))
    assert spent_by(logs, 3) == pytest.approx(spent_by(plain, 3), rel=1e-11)
    assert [cbor2.loads(cbor2.loads(m.save())["accountant_state"])["log_space_accounting"] for m in (plain, logs)] == [
        False, True]


def test_noise_seed_per_step():
    def second_noise(*more, **keys):
        layout = {"w": (50,), **dict.fromkeys(more, (7,))}
        m, zeros = mechanism(layout, **keys), {name: np.zeros((1, *shape)) for name, shape in layout.items()}
        m.apply(zeros)
        return m.apply(zeros).gradients["w"]

    # Counters of step and tensor do not depend on what was drawn before; a running offset does.
    assert np.array_equal(second_noise(noise_seed_per_step=True), second_noise("v", noise_seed_per_step=True))
    assert not np.array_equal(second_noise(noise_seed_per_step=False), second_noise("v", noise_seed_per_step=False))
    assert np.array_equal(second_noise(), second_noise(noise_seed_per_step=False))  # the default


def test_target_delta():
    m = mechanism(target_delta=1e-7)
    assert is_nearly(spent_by(m, 3), exact(1, 3, delta=1e-7)) and m.spent.delta == 1e-7 and spent_by(m) > exact(1, 3)


def test_safety_budget_reserve():
    for keys, reserve in (({}, 0.08), ({"safety_budget_reserve": 0.5}, 0.5)):
        m = mechanism(target_epsilon=0.5, **keys)
        done = [m.apply(gradients(seed=t)) for t in range(24)]
        warned = [bool(step.warnings) for step in done]
        assert warned == [step.epsilon.after.upper > 0.5 * (1 - reserve) for step in done]
        assert warned == [step.epsilon.past_warning for step in done] and 0 < sum(warned) < len(warned)


@pytest.mark.parametrize("how", ["topk_dp", "sparse_dp"])
def test_compression(how):
    m, arrays = mechanism({"w": (100,)}, noise={"compression": how, "compression_keep": 0.25}), {"w": np.ones((10, 100))}
    kept = [np.flatnonzero(m.apply(arrays).gradients["w"]) for _ in range(3)]
    # topk_dp has released nothing before its first step.
    assert [len(k) for k in kept] == ([100, 25, 25] if how == "topk_dp" else [25] * 3)
    assert is_nearly(m.spent.epsilon.upper, exact(1, 3))


@pytest.mark.parametrize("kind", ["dp_only", "3d", "fsdp2", "zero3", "moe"])
def test_parallelism_type_resolves_to_what_runs(kind):
    m = mechanism(parallelism={"type": kind})
    assert m.trace_header()["parallelism.type"] == "dp_only"
    assert [note for note in m.config.notes if f"parallelism.type {kind} resolves to dp_only" in note] == (
        [] if kind == "dp_only" else m.config.notes[:1])


MEMORY = r"""
import re, numpy as np, discreet
X = np.random.default_rng(0).uniform(-1, 1, size=(4000, 3)); y = (X[:, 0] > 0).astype(int)
for most in (256, 256, 4000):
    discreet.train(X, y, bounds=(-1, 1), classes=[0, 1], hidden=[1000], target_epsilon=8, target_delta=1e-5, declared_size=4000,
                   settings={"max_microbatch": most, "target_steps": 1, "effective_batch_size": 3900, "clipping.ghost": True})
    print(re.search(r"VmHWM:\s*(\d+) kB", open("/proc/self/status").read())[1])
"""


def test_max_microbatch_bounds_the_records_held_at_once():
    out = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    first, again, large = map(int, out.stdout.split())
    # One activation of 3900 records takes 15600 kB.
    assert again - first < 4000 and large - again > 15000
