import math

import pytest

import discreet


def test_account_gives_a_certified_interval():
    spent = discreet.account(sampling_rate=0.01, noise_multiplier=1.0, steps=1000, delta=1e-5)
    # 40-digit reference of tests/golden/accounting: 1.82823666651...
    assert spent.epsilon.lower <= 1.828236666515 <= spent.epsilon.upper
    assert spent.epsilon.upper - spent.epsilon.lower < 1e-9
    assert (spent.delta, spent.adjacency, spent.accountant) == (1e-5, "add_remove", "pld")


def test_delta_for_an_epsilon_is_the_gaussian_closed_form():
    spent = discreet.account(sampling_rate=1, noise_multiplier=1.0, steps=1, epsilon=1.0)
    phi = lambda x: math.erfc(-x / math.sqrt(2)) / 2
    exact = phi(-0.5) - math.e * phi(-1.5)
    assert spent.epsilon == 1.0
    assert spent.delta.lower <= exact * (1 + 1e-12) and exact * (1 - 1e-12) <= spent.delta.upper


def test_no_steps_spend_nothing():
    assert discreet.account(sampling_rate=0.1, noise_multiplier=1, steps=0,
                            delta=1e-5).epsilon == discreet.Interval(0, 0)


@pytest.mark.parametrize("missing", ["noise_multiplier", "sampling_rate", "steps"])
def test_calibrate_finds_the_missing_setting(missing):
    setting = {"noise_multiplier": 0.97, "sampling_rate": 256 / 60000, "steps": 14040}
    del setting[missing]
    found = discreet.calibrate(target_epsilon=3, delta=1e-5, **setting)
    assert found.epsilon.upper <= 3 and found.proven
    again = discreet.account(sampling_rate=found.sampling_rate, steps=found.steps,
                             noise_multiplier=found.noise_multiplier, delta=1e-5)
    assert again.epsilon.upper <= 3


def test_accountant_does_not_depend_on_the_order_and_restores_bit_for_bit():
    steps = [(0.01, 1.0, 500), (0.02, 2.0, 100), (1.0, 30.0, 5), (0.01, 1.0, 500)]
    forward, backward = discreet.PldAccountant(), discreet.PldAccountant()
    for accountant, order in ((forward, steps), (backward, steps[::-1])):
        for rate, sigma, count in order:
            accountant.add(sampling_rate=rate, noise_multiplier=sigma, steps=count)
    assert forward.save() == backward.save()
    restored = discreet.PldAccountant.restore(forward.save())
    assert restored.epsilon(1e-6) == forward.epsilon(1e-6) == backward.epsilon(1e-6)
    assert restored.steps == 1105
    with pytest.raises(discreet.Error, match="MALFORMED"):
        discreet.PldAccountant.restore(forward.save()[:-1])


def test_would_exceed_says_so_before_the_step():
    accountant = discreet.PldAccountant()
    accountant.add(sampling_rate=0.01, noise_multiplier=1.0, steps=999)
    step = dict(sampling_rate=0.01, noise_multiplier=1.0, delta=1e-5)
    assert not accountant.would_exceed(target_epsilon=1.8283, **step)
    assert accountant.would_exceed(target_epsilon=1.8282, **step)
    assert accountant.steps == 999


BAD = [
    ({"sampling_rate": 0.0}, "0"), ({"sampling_rate": 1.5}, "1.5"),
    ({"sampling_rate": math.nan}, "nan"), ({"noise_multiplier": 0.0}, "0"),
    ({"noise_multiplier": -1.0}, "-1"), ({"noise_multiplier": math.inf}, "inf"),
    ({"noise_multiplier": math.nan}, "nan"), ({"steps": -1}, "-1"), ({"steps": 2.5}, "2.5"),
    ({"steps": 2**64}, str(2**64)), ({"steps": True}, "True"), ({"delta": 0.0}, "0"),
    ({"delta": 1.0}, "1"), ({"delta": math.nan}, "nan"), ({"adjacency": "friends"}, "friends"),
    ({"epsilon": 1.0}, "either"),
]


@pytest.mark.parametrize("rate, noise, target", [(256 / 60000, 1.1, 3), (0.01, 1.0, 2), (1, 20, 1)])
def test_calibrated_steps_are_the_last_that_fit(rate, noise, target):
    found = discreet.calibrate(target_epsilon=target, delta=1e-5, sampling_rate=rate, noise_multiplier=noise)
    more = discreet.account(sampling_rate=rate, noise_multiplier=noise, steps=found.steps + 1, delta=1e-5)
    assert found.proven and found.epsilon.upper <= target < more.epsilon.upper


@pytest.mark.parametrize("change, named", BAD, ids=[str(change) for change, _ in BAD])
def test_bad_input_names_the_value(change, named):
    setting = dict(sampling_rate=0.01, noise_multiplier=1.0, steps=1000, delta=1e-5) | change
    with pytest.raises(discreet.Error) as caught:
        discreet.account(**setting)
    assert caught.value.code in ("INVALID_DP_CONFIG", "ACCOUNTANT_OVERFLOW")
    assert named in caught.value.sentence
