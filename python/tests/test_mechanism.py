import decimal
import hashlib
import json
import pickle
import threading
import time

import cbor2
import numpy as np
import pytest

import discreet
from discreet.mechanism import Tensor

KEYS = {"target_epsilon": 8, "declared_size": 1000, "effective_batch_size": 10, "secure": False,
        "seed": 11}
LAYOUT = {"a.weight": (4, 3), "a.bias": (4,), "frozen": Tensor((5,), trainable=False), "b": ()}


def config(dtype="float64", **keys):
    return {"security": {"differential_privacy": KEYS | keys}, "run": {"compute_dtype": dtype}}


def mechanism(dtype="float64", layout=LAYOUT, **keys):
    return discreet.Mechanism(config(dtype, **keys), layout)


def gradients(step=0, records=10, dtype=np.float32):
    random = np.random.default_rng(step)
    return {"a.weight": random.normal(size=(records, 4, 3)).astype(dtype),
            "a.bias": random.normal(size=(records, 4)).astype(dtype),
            "b": random.normal(size=records).astype(dtype)}


def clipped_average(arrays, bound, batch):
    """The definition of a step without noise, by NumPy."""
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    norms = np.sqrt(sum(np.square(a).reshape(len(a), -1).sum(1) for a in wide.values()))
    scales = np.minimum(1, bound / (norms + 1e-8))
    return {name: np.tensordot(scales, a, axes=1) / batch for name, a in wide.items()}, norms, scales


def refused(call, *arguments, **options):
    with pytest.raises(discreet.Error) as caught:
        call(*arguments, **options)
    return caught.value


def same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_step_without_noise_is_the_definition(dtype):
    m = mechanism(debug=True, noise_multiplier=0, clipping={"norm": 2.5})
    arrays = gradients(dtype=dtype)
    arrays["a.bias"][:5] *= 0.01
    arrays["a.weight"][:5] *= 0.01
    step = m.apply(arrays)
    expected, norms, scales = clipped_average(arrays, 2.5, batch=10)
    assert set(step.gradients) == {"a.weight", "a.bias", "b"}
    for name, value in expected.items():
        assert step.gradients[name].shape == value.shape
        assert step.gradients[name].dtype == np.float64
        np.testing.assert_allclose(step.gradients[name], value, rtol=1e-12, atol=1e-14)
    assert 0 < step.metrics["clip_fraction"] == np.mean(scales < 1) < 1
    assert step.metrics["norm_max"] == pytest.approx(norms.max(), rel=1e-12)
    average = np.sqrt(sum(np.square(value).sum() for value in expected.values()))
    assert step.metrics["gradient_snr"] == pytest.approx(average / 1e-12, rel=1e-12)  # EPS_DENOM
    assert m.not_private and "debug" in " ".join(m.not_private)


def test_metrics_of_norms_and_clipping_are_those_of_numpy():
    m = mechanism(clipping={"strategy": "per_layer", "norm": 2}, privacy_allocation="layer_wise")
    arrays = gradients()
    for name, quiet in (("a.weight", 4), ("a.bias", 4), ("b", 7)):
        arrays[name][:quiet] *= 0.01
    parts = [np.sqrt(sum(np.square(arrays[name].astype(np.float64)).reshape(10, -1).sum(1) for name in names))
             for names in (("a.weight", "a.bias"), ("b",))]
    bounds = [m.trace_header()["allocation_map"][part][1] for part in ("a", "b")]
    clipped = [norms > bound for norms, bound in zip(parts, bounds)]
    shares = [np.mean(c) for c in clipped]
    assert 0 < shares[1] < shares[0] < 1
    metrics = m.apply(arrays).metrics
    assert metrics["group_clip_fraction"] == shares
    assert metrics["clip_fraction"] == np.mean(np.logical_or(*clipped))
    assert metrics["fairness_clip_ratio"] == pytest.approx(shares[1] / shares[0], rel=1e-12)
    norms = np.sort(np.hypot(*parts))
    nearest_ranks = [norms[4], norms[9], norms[9]]
    assert [metrics[name] for name in ("norm_p50", "norm_p95", "norm_max")] == pytest.approx(nearest_ranks, rel=1e-12)
    assert metrics["privacy_allocation_mode"] == "layer_wise"


@pytest.mark.parametrize("name, dtype", [("float32", np.float32), ("float64", np.float64),
                                         ("bfloat16", np.float32)])
def test_noise_has_the_stated_deviation_and_the_result_the_configured_dtype(name, dtype):
    layout = {"w": (100, 200)}
    m = mechanism(name, layout, clipping={"norm": 0.5}, noise_multiplier=2)
    noise = m.apply({"w": np.zeros((10, 100, 200), np.float32)}).gradients["w"]
    assert noise.dtype == dtype and noise.shape == (100, 200)
    # 20000 draws: the relative deviation of the estimate is 1/200; 6 of them, about 2e-9.
    assert noise.std() == pytest.approx(2 * 0.5 / 10, rel=0.03)
    if name == "bfloat16":
        assert not (noise.view(np.uint32) & 0xffff).any()


def test_charges_what_the_accountant_says_and_a_little_for_rounding():
    m = mechanism()
    before = 0.0
    for t in range(3):
        step = m.apply(gradients(t))
        assert step.t == t and m.t == t + 1
        assert step.epsilon.before.upper == before
        before = step.epsilon.after.upper
        assert step.epsilon.after.lower <= before == step.metrics["cumulative_epsilon"]
        assert step.metrics["privacy_budget_remaining"] == 8 - before
    exact = discreet.account(sampling_rate=0.01, noise_multiplier=1.0, steps=3, delta=1e-5)
    assert exact.epsilon.upper <= before <= exact.epsilon.upper * (1 + 1e-5)
    assert m.spent.epsilon.upper == before
    assert (m.spent.delta, m.spent.adjacency, m.spent.accountant) == (1e-5, "add_remove", "pld")
    assert step.epsilon.adjacency == "add_remove" and step.epsilon.target == 8


def test_budget_exceeded_raises_releases_nothing_and_changes_no_byte():
    m = mechanism(target_epsilon=1.0, noise_multiplier=0.8)
    warned = False
    with pytest.raises(discreet.Error) as caught:
        for t in range(1000):
            saved = m.save()
            warned |= bool(m.apply(gradients(t)).warnings)
    assert caught.value.code == "PRIVACY_BUDGET_EXCEEDED"
    assert m.save() == saved and m.t == t > 0 and m.spent.epsilon.upper <= 1.0
    assert warned
    failure = m.failure(caught.value)
    assert failure["failure_code"] == "PRIVACY_BUDGET_EXCEEDED" and failure["t"] == t
    assert failure["diagnostics"] == caught.value.sentence
    assert m.trace_end()["budget_status"] == "within_reserve"


def test_the_budget_includes_the_target_itself_and_nothing_above_it():
    def run(target):
        # The cost of exact noise does not depend on the target.
        return mechanism(target_epsilon=target, accountant="rdp", mechanism="rounded_gaussian", noise={"discrete": 2.0**-6})

    m = run(2)
    spent = [m.apply(gradients(t)).epsilon.after.upper for t in range(3)]
    for target, steps in ((spent[2], 3), (np.nextafter(spent[2], 0), 2)):
        m = run(target)
        assert [m.apply(gradients(t)).epsilon.after.upper for t in range(steps)] == spent[:steps]
        assert refused(m.apply, gradients(steps)).code == "PRIVACY_BUDGET_EXCEEDED" and m.t == steps


def test_of_several_failures_that_of_the_earliest_step_of_the_procedure_is_reported():
    nan = gradients()
    nan["b"][0] = np.nan
    budget = {"target_epsilon": 1e-3, "target_steps": 10}

    def failing(stream_ended, keys, arrays):
        m = mechanism(**budget, **keys)
        if stream_ended:
            m.restore(cbor2.dumps(cbor2.loads(m.save()) | {"rng_dp_state": 2**62}, canonical=True))
        before = m.save()
        error = refused(m.apply, arrays)
        assert m.save() == before
        return error.code, error.op

    abort = {"projection": {"policy": "abort"}}
    # Every case fails in all later ways, too.
    wrong = refused(mechanism, sampling_mode="SEQUENTIAL_V1", subsampling="POISSON", **budget, **abort)
    assert (wrong.code, wrong.op) == ("INVALID_DP_CONFIG", "PreValidation_v1")
    assert failing(True, abort, nan) == ("INVALID_GRADIENT", "ClipPerSample_v1")
    assert failing(True, abort, gradients()) == ("PRIVACY_BUDGET_EXCEEDED", "DPScalingLawProjector_v1")
    assert failing(True, {}, gradients())[0] == "RNG_CONSUMPTION_VIOLATION"
    assert failing(False, {}, gradients()) == ("PRIVACY_BUDGET_EXCEEDED", "Accountant.Update_v1")


def test_save_and_restore_are_bit_for_bit():
    one, other = mechanism(), mechanism()
    for t in range(3):
        one.apply(gradients(t))
    other.restore(one.save())
    assert other.save() == one.save() and other.fingerprint == one.fingerprint
    assert other.replay == one.replay and other.t == 3
    for t in range(3, 6):
        first, second = one.apply(gradients(t)), other.apply(gradients(t))
        same(first.gradients, second.gradients)
        assert first.trace == second.trace and first.metrics == second.metrics
    assert other.save() == one.save()


def test_restore_refuses_what_is_not_its_own_and_stays_as_it_was():
    m, saved = mechanism(), mechanism(noise_multiplier=2).save()
    m.apply(gradients())
    before = m.save()
    assert refused(m.restore, saved).code == "INVALID_INPUT"
    for bad in (b"", b"\x00", before[:-1], before + b"\x00"):
        assert refused(m.restore, bad).code == "MALFORMED"
    assert m.save() == before


def test_accumulated_microbatches_are_one_step():
    whole = mechanism().apply(gradients())
    parts = [{name: array[cut] for name, array in gradients().items()}
             for cut in (slice(0, 3), slice(3, 7), slice(7, 10))]
    m = mechanism(gradient_accumulation_steps=3)
    assert refused(m.release).code == "INVALID_DP_CONFIG"
    for part in parts[:2]:
        m.accumulate(part)
    assert refused(m.release).code == "INVALID_DP_CONFIG"
    saved = m.save()
    assert refused(m.apply, parts).code == "INVALID_DP_CONFIG"
    m.accumulate(parts[2])
    assert refused(m.accumulate, parts[2]).code == "INVALID_DP_CONFIG"
    step = m.release()
    assert m.t == 1 and step.metrics["effective_accumulation_factor"] == 3
    for name in whole.gradients:
        np.testing.assert_allclose(step.gradients[name], whole.gradients[name], rtol=1e-12)
    # In the middle of a step, and all at once, it is the same.
    middle = mechanism(gradient_accumulation_steps=3)
    middle.restore(saved)
    middle.accumulate(parts[2])
    same(middle.release().gradients, step.gradients)
    same(mechanism(gradient_accumulation_steps=3).apply(parts).gradients, step.gradients)


def test_failed_call_changes_no_byte():
    m = mechanism()
    before = m.save()
    good = gradients()
    bad = {
        "are missing": {name: good[name] for name in ("a.weight", "a.bias")},
        "did you mean a.bias": good | {"a.bais": good["a.bias"]},
        "has the shape [10, 3, 4]": good | {"a.weight": np.zeros((10, 3, 4), np.float32)},
        "has 9 records": good | {"b": np.zeros(9, np.float32)},
        "of the dtype of the first": good | {"b": good["b"].astype(np.float64)},
        "must be a C-contiguous": good | {"a.weight": good["a.weight"][:, ::-1]},
        "float32 or float64": {name: array.astype(np.float16) for name, array in good.items()},
        "tensor b must be": good | {"b": [1.0] * 10},
        "not finite": good | {"b": np.full(10, np.nan, np.float32)},
        "more than the 274": gradients(records=300),
    }
    for named, arrays in bad.items():
        for call in (m.apply, m.accumulate):
            error = refused(call, arrays)
            assert error.code == "INVALID_GRADIENT", named
            assert named in error.sentence
            assert m.save() == before, named


def test_frozen_and_public_tensors_are_not_read_and_get_no_gradient():
    m = mechanism(public_modules=["b"])
    step = m.apply(gradients() | {"frozen": "anything", "b": None})
    assert set(step.gradients) == {"a.weight", "a.bias"}


def test_arrays_of_the_result_belong_to_the_caller():
    m = mechanism()
    first = m.apply(gradients())
    kept = first.gradients["a.weight"].copy()
    first.gradients["a.weight"][:] = 7
    saved = m.save()
    other = mechanism()
    same(other.apply(gradients()).gradients, {**first.gradients, "a.weight": kept})
    assert other.save() == saved


def test_key_decides_the_noise_of_a_secure_run():
    def noise(key):
        m = discreet.Mechanism(config(secure=True), {"w": (50,)}, key=key)
        assert m.not_private == []
        return m.apply({"w": np.zeros((3, 50))}).gradients["w"]

    np.testing.assert_array_equal(noise(b"k" * 32), noise(b"k" * 32))
    assert (noise(b"k" * 32) != noise(b"l" * 32)).all()
    assert (noise(None) != noise(None)).all()
    assert refused(noise, b"short").code == "MALFORMED"


def test_data_commitment_is_in_the_replay_token():
    def replay(digest):
        return discreet.Mechanism(config(), LAYOUT, data_commitment=digest).replay

    assert replay(None) == replay(bytes(32)) != replay(b"\x01" * 32)
    assert refused(replay, b"\x01").code == "INVALID_INPUT"


def test_trace_lines_are_dictionaries_that_json_can_hold():
    m = mechanism()
    header, step, end = m.trace_header(), m.apply(gradients()), m.trace_end()
    for line in (header, step.trace, end):
        assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert header["config_hash"] == m.config.hash and header["adjacency"] == "add_remove"
    assert step.trace["t"] == 0 and step.trace["dp_replay_t"] == m.replay
    assert step.trace["cumulative_epsilon_after"] == step.epsilon.after.upper
    assert end["t"] == 1 and end["final_epsilon"]["upper"] == step.epsilon.after.upper
    shared = step.trace.keys() & step.metrics.keys()
    assert shared >= {
        "clip_fraction", "group_clip_fraction", "noise_scale_sigma", "effective_noise_multiplier",
        "effective_heterogeneous_multiplier", "effective_accumulation_factor", "projected_final_epsilon", "norm_p50",
        "norm_p95", "norm_max", "gradient_snr", "fairness_clip_ratio", "scaling_law_confidence",
        "peft_noise_reduction_factor", "accountant_type_used", "pld_epsilon_tight"}
    assert all(step.trace[name] == step.metrics[name] for name in shared)


def test_the_sampler_hash_is_that_of_rate_batch_size_and_mode_and_of_nothing_else():
    def hash_of(**keys):
        return mechanism(**keys).trace_header()["sampler_config_hash"]

    same_sampler = [hash_of(**keys) for keys in (
        {}, {"noise_multiplier": 3}, {"target_epsilon": 2}, {"clipping": {"norm": 7}}, {"accountant": "rdp"})]
    assert len(set(same_sampler)) == 1
    others = [hash_of(**keys) for keys in (
        {"effective_batch_size": 20}, {"declared_size": 2000}, {"sampling_mode": "SEQUENTIAL_V1"},
        {"sampling_mode": "TRUNCATED_POISSON_V1", "truncated_batch": 50},
        {"sampling_mode": "SHUFFLE_WITHOUT_REPLACEMENT_FIXED_SIZE_V1"})]
    assert len({*same_sampler, *others}) == 6


def test_released_metrics_are_noised_and_charged():
    plain, released = mechanism().apply(gradients()), mechanism(metrics={"release": "dp"}).apply(
        gradients())
    assert plain.released is None and 0 <= released.released["clip_fraction"] <= 1
    assert released.epsilon.after.upper > plain.epsilon.after.upper


def test_sampler_draws_by_the_configured_law():
    m = mechanism()
    sampler = m.sampler(1000)
    batches = [sampler.batch(step) for step in range(200)]
    # 200 x 1000 coins of 0.01: 2000 with deviation 44.5; 6 of them, about 2e-9.
    assert sum(map(len, batches)) == pytest.approx(2000, abs=267)
    np.testing.assert_array_equal(batches[7], mechanism().sampler(1000).batch(7))
    shares = [sampler.batch(7, rank=rank, world=3) for rank in range(3)]
    np.testing.assert_array_equal(np.sort(np.concatenate(shares)), batches[7])


@pytest.mark.parametrize("form", ["text", "path", "name", "dictionary"])
def test_takes_text_path_or_dictionary(form, tmp_path):
    tree = config()
    file = tmp_path / "train.yaml"
    file.write_text(json.dumps(tree))
    given = {"text": json.dumps(tree), "path": file, "name": str(file), "dictionary": tree}[form]
    assert discreet.load_config(given).hash == discreet.load_config(tree).hash
    assert discreet.Mechanism(given, LAYOUT).config.hash == discreet.load_config(tree).hash


def test_load_config_resolves_and_says_what_it_did():
    loaded = discreet.load_config(config(), settings={"clipping.norm": 0.25, "seed": np.int64(3)})
    assert "norm: 0.25" in loaded.yaml and "seed: 3" in loaded.yaml
    assert discreet.load_config(loaded.yaml).hash == loaded.hash
    assert len(loaded.not_private) == 1 and "secure" in loaded.not_private[0]
    assert loaded.notes == []


@pytest.mark.parametrize("key", ["noise_multiplier=7 #", "noise_multiplier ", "a\nb", "=", "", 3])
def test_a_key_of_settings_is_only_a_key(key):
    for call in (discreet.load_config, lambda tree, settings: discreet.Mechanism(tree, LAYOUT, settings=settings)):
        error = refused(call, config(), settings={"noise_multiplier": 0.5, key: 1})
        assert error.code == "INVALID_DP_CONFIG" and repr(key) in error.sentence and "without = and spaces" in error.sentence


def test_wrong_configurations_say_where_and_what_instead(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("security:\n  differential_privacy:\n    target_epsilo: 3\n")
    error = refused(discreet.load_config, file)
    assert error.code == "INVALID_DP_CONFIG"
    assert "c.yaml:3" in error.sentence and "did you mean target_epsilon?" in error.sentence
    for keys in ({"noise_multiplier": 0}, {"target_epsilon": "3"}, {"mechanism": "laplace"},
                 {"public_modules": ["nothing"]}, {"clipping": {"strategy": "per_lyaer"}}):
        assert refused(mechanism, **keys).code == "INVALID_DP_CONFIG", keys
    assert refused(discreet.Mechanism, config(), {"w": (2,), "": ()}).code == "INVALID_INPUT"
    with pytest.raises(FileNotFoundError):
        discreet.load_config(tmp_path / "absent.yaml")


def test_ghost_clipping_needs_backward_passes_and_says_so():
    m = mechanism(clipping={"strategy": "ghost"})
    assert refused(m.apply, gradients()).code == "INVALID_DP_CONFIG"


def test_threads_share_a_mechanism_one_step_at_a_time():
    m = mechanism(layout={"w": (2000,)})
    arrays = {"w": np.ones((10, 2000), np.float32)}
    done = []
    workers = [threading.Thread(target=lambda: done.append(m.apply(arrays).t)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(done) == list(range(8)) and m.t == 8


def test_never_pickles_its_key():
    with pytest.raises(TypeError):
        pickle.dumps(mechanism())
    assert "epsilon ≤ 0" in repr(mechanism())


def test_its_text_is_never_below_what_it_spent():
    m, rounded_up = mechanism(), 0
    for step in range(8):
        m.apply(gradients(step))
        upper = m.spent.epsilon.upper
        printed = decimal.Decimal(repr(m).split("≤ ")[1].split()[0])
        assert 0 <= printed - decimal.Decimal(upper) < decimal.Decimal("1e-4")
        rounded_up += float(f"{upper:.6g}") < upper
    assert rounded_up > 0  # where rounding to nearest would have stated less


def test_steps_that_are_executed_again_take_fresh_noise_and_batches_and_are_charged():
    key = bytes(32)

    def fresh():
        return discreet.Mechanism(config(secure=True), LAYOUT, key=key)

    first = fresh()
    first.apply(gradients(0))
    saved = first.save()
    lost = first.apply(gradients(1))

    silent = fresh()
    assert refused(silent.restore, saved).code == "INVALID_INPUT"
    exact = fresh()
    exact.restore(saved, released=1)
    same(exact.apply(gradients(1)).gradients, lost.gradients)
    assert exact.lineage == ""

    again = fresh()
    again.restore(saved, released=2)
    assert again.lineage != ""
    repeated = again.apply(gradients(1))
    assert not np.array_equal(repeated.gradients["a.weight"], lost.gradients["a.weight"])
    assert again.spent.epsilon.upper > first.spent.epsilon.upper
    assert list(again.sampler(1000).batch(1)) != list(first.sampler(1000).batch(1))


def test_a_name_of_a_tensor_that_is_no_text_is_rejected():
    assert "names of tensors must be text" in refused(mechanism().apply, {5: np.zeros((1, 4, 3))}).sentence


def test_a_step_costs_time_in_proportion_to_what_it_touches():
    def seconds(records, size):
        m, arrays = mechanism(layout={"w": (size,)}), {"w": np.ones((records, size), np.float32)}
        taken = []
        for _ in range(4):
            start = time.process_time()  # of this process: others do not count
            m.apply(arrays)
            taken.append(time.process_time() - start)
        return min(taken)

    least = seconds(16, 2**17)
    # Eight times as much; a quadratic step would take 64 times as long.
    assert seconds(128, 2**17) < 20 * least and seconds(16, 2**20) < 20 * least


def test_a_sigma_map_is_the_noise_that_is_drawn_and_accounted():
    layout, keys = {"a.weight": (20000,), "b.weight": (20000,)}, {
        "clipping": {"strategy": "per_layer"}, "clip_norm_map": {"a": 0.5, "b": 2.0}, "privacy_allocation": "custom",
        "sigma_map": {"a": 3.0, "b": 4.0}}
    m = mechanism(layout=layout, noise_multiplier=2.4, **keys)
    drawn = {name: multiplier * 2.4 for name, (multiplier, _) in m.trace_header()["allocation_map"].items()}
    assert drawn == pytest.approx({"a": 3, "b": 4}, rel=1e-9)
    step = m.apply({name: np.zeros((10, 20000), np.float32) for name in layout})
    # 20,000 numbers: the sample's deviation is within 5 standard errors (0.5 percent each) but for 6e-7.
    for name, deviation in (("a", 3 * 0.5 / 10), ("b", 4 * 2.0 / 10)):
        assert abs(step.gradients[f"{name}.weight"].std() / deviation - 1) < 0.025
    # One Gaussian: 1/sigma^2 = 1/9 + 1/16 = 1/2.4^2.
    exact = discreet.account(sampling_rate=0.01, noise_multiplier=2.4, steps=1, delta=1e-5).epsilon
    assert exact.lower <= m.spent.epsilon.upper <= exact.upper * (1 + 1e-6)
    wrong = refused(mechanism, layout=layout, **keys)
    assert wrong.code == "INVALID_DP_CONFIG"
    assert "sigma_map has the effective multiplier 2.4, but noise_multiplier is 1" in wrong.sentence
    ratios = mechanism(layout=layout, mode="meet_exactly_at_target_steps", target_steps=10, **keys)
    assert any(note.startswith("sigma_map gives the ratios of the noise") for note in ratios.config.notes)


def test_a_regulated_mechanism_with_ghost_clipping_needs_the_hash_of_its_bound():
    keys = KEYS | {"regulated": True, "secure": True, "clipping": {"ghost": True}}
    tree = {"security": {"differential_privacy": keys}}
    text = discreet.mechanism.ghost_bound(tree, LAYOUT)
    assert [layer["name"] for layer in json.loads(text)["layers"]] == ["a.weight", "a.bias", "b"]
    wrong = refused(discreet.Mechanism, tree, LAYOUT, settings={"ghost_bound_hash": "a" * 64})
    assert wrong.code == "INVALID_DP_CONFIG" and "another SHA-256" in wrong.sentence
    discreet.Mechanism(tree, LAYOUT, settings={"ghost_bound_hash": hashlib.sha256(text.encode()).hexdigest()})


def test_shares_of_experts_are_stated_and_do_not_change_epsilon():
    layout = {"experts": Tensor((4, 3), experts=(4, 0)), "head": (3,)}
    arrays = {"experts": np.zeros((5, 4, 3), np.float32), "head": np.zeros((5, 3), np.float32)}
    spent = {}
    for routing in (None, [0.7, 0.1, 0.1, 0.1]):
        m = discreet.Mechanism(config(), layout, routing=routing)
        spent[routing is None] = m.apply(arrays).epsilon.after.upper
        stated = m.trace_header().get("routing_aware_rates")
        assert stated == (None if routing is None else
                          {"rates": pytest.approx([0.007, 0.001, 0.001, 0.001]), "note": "not a bound"})
    assert spent[True] == spent[False]
    exact = discreet.account(sampling_rate=0.01, noise_multiplier=1, steps=1, delta=1e-5).epsilon
    assert exact.lower <= spent[False] <= exact.upper * (1 + 1e-6)
    assert "no tensor has that many experts" in refused(discreet.Mechanism, config(), layout, routing=[0.5, 0.5]).sentence
    assert "a share must be in [0, 1]" in refused(discreet.Mechanism, config(), layout, routing=[2.0, 0, 0, 0]).sentence


def test_an_accumulation_that_starts_in_the_middle_is_refused():
    for current, starts in ((0, True), (1, False)):
        keys = {"gradient_accumulation_steps": 2, "accumulation_context": {"current_step": current, "is_final": current == 1}}
        if starts:
            mechanism(**keys)
        else:
            assert "a run starts with microbatch 0" in refused(mechanism, **keys).sentence


@pytest.mark.parametrize("accountant", ["pld", "rdp", "moments", "gdp", "f_dp"])
def test_the_saved_events_give_every_accountant_back_bit_for_bit(accountant):
    """The internals of an accountant (grid, orders, log-moments, conversion) are a function of the events in its state, so
    the state holds the events."""
    keys = {"accountant": accountant, "clipping": {"norm": "adaptive"}, "target_epsilon": 30,
            "phases": {"warmup": {"steps": 2, "noise_multiplier": 2}}}
    one, other = mechanism(**keys), mechanism(**keys)
    for step in range(4):
        one.apply(gradients(step))
    other.restore(one.save())
    before = one.spent
    assert (other.spent, other.replay, other.save()) == (before, one.replay, one.save())
    for step in range(4, 7):
        assert one.apply(gradients(step)).trace == other.apply(gradients(step)).trace
    assert (other.spent.epsilon, other.save()) == (one.spent.epsilon, one.save()) and one.spent.epsilon != before.epsilon
