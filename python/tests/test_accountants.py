"""Every accountant by name, the events they read, filters and the other samplers."""

import copy
import math
import pickle

import numpy as np
import pytest

import discreet
from discreet import amplification, events, filters
from discreet.events import Event, Gaussian, NoSampling, Poisson

NAMES = ["pld", "rdp", "moments", "gdp", "f_dp"]
STEP = Event(Gaussian(noise_multiplier=1.0), Poisson(rate=0.01), adjacency="add_remove")
EPSILON = 1.828236666515  # of 1000 of them at delta 1e-5; tests/golden/accounting


# ---------------------------------------------------------------- accountants

@pytest.mark.parametrize("name", NAMES)
def test_every_accountant_bounds_the_same_run(name):
    spent = discreet.Accountant(name).compose(STEP, 1000).epsilon(1e-5)
    assert spent.epsilon.lower <= EPSILON <= spent.epsilon.upper
    assert spent.epsilon.upper < 1.4 * EPSILON
    assert (spent.accountant, spent.adjacency, spent.delta) == (name, "add_remove", 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_delta_at_the_upper_epsilon_is_the_delta_asked_for(name):
    accountant = discreet.Accountant(name).compose(STEP, 1000)
    back = accountant.delta(accountant.epsilon(1e-5).epsilon.upper)
    assert back.delta.lower <= 1e-5 and back.delta.upper == pytest.approx(1e-5, rel=1e-6)


def test_the_central_limit_value_stands_beside_the_bound_and_is_below_the_truth():
    step = Event(Gaussian(0.6), Poisson(0.001))
    spent = discreet.Accountant("gdp").compose(step, 10_000).epsilon(1e-5)
    truth = discreet.Accountant("pld").compose(step, 10_000).epsilon(1e-5).epsilon
    assert spent.clt_epsilon_not_a_bound == pytest.approx(1.505, abs=1e-3)
    assert spent.clt_epsilon_not_a_bound < truth.lower < spent.epsilon.upper
    full = discreet.Accountant("gdp").compose(Event(Gaussian(2.0)), 4).epsilon(1e-5)
    assert full.clt_epsilon_not_a_bound is None and full.epsilon.upper - full.epsilon.lower < 1e-10


@pytest.mark.parametrize("name", NAMES)
def test_an_accountant_is_saved_pickled_and_copied_bit_for_bit(name):
    accountant = discreet.Accountant(name).compose(STEP, 500).compose(Event(Gaussian(30.0)), 5)
    wanted = accountant.epsilon(1e-6)
    for other in (discreet.Accountant.restore(name, accountant.save()), copy.copy(accountant),
                  pickle.loads(pickle.dumps(accountant)), copy.deepcopy(accountant)):
        assert other.epsilon(1e-6) == wanted
        other.compose(STEP, 500)
        assert other.epsilon(1e-6).epsilon.upper > wanted.epsilon.upper
    assert accountant.epsilon(1e-6) == wanted
    with pytest.raises(discreet.Error, match="MALFORMED"):
        discreet.Accountant.restore(name, accountant.save()[:-1])


def test_log_space_accounting_agrees():
    plain, logs = (discreet.Accountant("rdp", log_space_accounting=on).compose(STEP, 10**6)
                   for on in (False, True))
    assert logs.epsilon(1e-5).epsilon.upper == pytest.approx(plain.epsilon(1e-5).epsilon.upper,
                                                             rel=1e-11)


def test_what_an_accountant_cannot_bound_is_refused_by_name_and_changes_nothing():
    accountant = discreet.Accountant("pld").compose(STEP, 10)
    before = accountant.save()
    for event, named in ((Event(events.Laplace(1.0)), "laplace"),
                         (Event(Gaussian(1.0), events.BallsAndBins(10)), "balls_and_bins"),
                         (Event(Gaussian(1.0), adjacency="replace_one"), "replace_one")):
        with pytest.raises(discreet.Error, match=named):
            accountant.compose(event)
    with pytest.raises(discreet.Error, match="-1"):
        accountant.compose(STEP, -1)
    with pytest.raises(discreet.Error, match="nothing"):
        discreet.Accountant("nothing")
    assert accountant.save() == before


def test_other_samplers_are_accounted_by_their_events():
    epoch = Event(Gaussian(1.0), events.BallsAndBins(1000))
    binned = discreet.Accountant("pld").compose(epoch, 10).epsilon(1e-5).epsilon
    assert binned == amplification.allocation_epsilon([(1.0, 1000, 10)], delta=1e-5)
    shuffled = Event(Gaussian(5.0), events.ShuffledEpoch(1000), adjacency="zero_out")
    spent = discreet.Accountant("pld").compose(shuffled, 10).epsilon(1e-5)
    assert round(spent.epsilon.upper, 2) == 2.59 and spent.adjacency == "zero_out"


def test_the_adjacency_is_that_of_the_events():
    accountant = discreet.Accountant("rdp")
    assert accountant.adjacency == "add_remove"
    accountant.compose(Event(Gaussian(4.0), adjacency="replace_one"))
    assert accountant.adjacency == "replace_one" == accountant.delta(1.0).adjacency
    half = discreet.Accountant("rdp").compose(Event(Gaussian(2.0)))
    assert accountant.epsilon(1e-5).epsilon == half.epsilon(1e-5).epsilon


# ---------------------------------------------------------------- events

ALL = [
    Event(Gaussian(1.5)),
    Event(Gaussian(1.5), NoSampling(), adjacency="replace_one"),
    Event(events.GaussianGroups([events.Group(2.0, 1.0), events.Group(3.0, 0.5)], flat_clip=1.1,
                                adaptation=events.Adaptation(counts=2, deviation=10.0)),
          Poisson(0.1)),
    Event(events.Laplace(scale=2.0), Poisson(rate=0.5)),
    Event(events.DiscreteGaussian(noise_multiplier=1.0, sensitivity=100.0)),
    Event(events.RoundedGaussian(noise_multiplier=1.0), Poisson(0.1), adjacency="zero_out"),
    Event(events.Skellam(variance=1e4, l1=50.0, l2=10.0, linf=5.0)),
    Event(events.Guarantee(epsilon=0.5, delta=1e-9)),
    Event(Gaussian(1.0), events.TruncatedPoisson(rate=0.1, batch=10, population=100)),
    Event(Gaussian(1.0), events.FixedSize(batch=10, population=100), adjacency="replace_one"),
    Event(Gaussian(1.0), events.BallsAndBins(batches=10)),
    Event(Gaussian(1.0), events.ShuffledEpoch(batches=10), adjacency="zero_out"),
]


@pytest.mark.parametrize("event", ALL, ids=[str(event) for event in ALL])
def test_an_event_is_a_value(event):
    names = {name: getattr(events, name) for name in events.__all__}
    for same in (eval(repr(event), names), Event.decode(event.encode()),
                 pickle.loads(pickle.dumps(event)),
                 Event(event.mechanism, event.sampling, adjacency=event.adjacency)):
        assert same == event and hash(same) == hash(event) and repr(same) == repr(event)
    assert sum(event == other for other in ALL) == 1 and event != "event"


def test_events_are_immutable():
    with pytest.raises(AttributeError):
        STEP.mechanism.noise_multiplier = 100.0
    groups = ALL[2].mechanism.groups
    groups.clear()
    assert len(ALL[2].mechanism.groups) == 2


def test_groups_are_one_gaussian():
    groups = events.GaussianGroups([events.Group(2.0, 1.0)] * 4)
    assert groups.effective_noise_multiplier == pytest.approx(1.0, rel=1e-14)
    assert groups.effective_noise_multiplier <= 1.0


BAD_EVENTS = [
    (lambda: Event(Gaussian(-1.0)), "-1"),
    (lambda: Event(Gaussian(math.nan)), "nan"),
    (lambda: Event(Gaussian(1.0), Poisson(1.5)), "1.5"),
    (lambda: Event(Gaussian(1.0), events.FixedSize(6, 5)), "6"),
    (lambda: events.FixedSize(-1, 5), "-1"),
    (lambda: events.FixedSize(2**64, 5), str(2**64)),
    (lambda: events.BallsAndBins(True), "True"),
    (lambda: events.Adaptation(2**32, 1.0), str(2**32)),
    (lambda: Event(Gaussian(1.0), adjacency="friends"), "friends"),
    (lambda: Event(Gaussian(1.0), events.ShuffledEpoch(10)), "shuffled_epoch"),
    (lambda: Event(events.Guarantee(1.0, 0.0), Poisson(0.1)), "guarantee"),
]


@pytest.mark.parametrize("make, named", BAD_EVENTS, ids=[named for _, named in BAD_EVENTS])
def test_a_bad_event_is_refused_by_its_value(make, named):
    with pytest.raises(discreet.Error) as caught:
        make()
    assert caught.value.code == "INVALID_DP_CONFIG" and named in caught.value.sentence


# ---------------------------------------------------------------- filters

def test_a_filter_stops_before_the_step_and_stays_as_it_was():
    budget = filters.ZcdpFilter.for_target(epsilon=3.0, delta=1e-5)
    rho, steps = 1 / (2 * 10.0**2), 0
    while budget.admits(rho):
        budget.spend(rho)
        steps += 1
    # The run is at most one full-batch Gaussian of mu = sqrt(steps)/10.
    exact = discreet.account(sampling_rate=1, noise_multiplier=10.0, steps=steps, delta=1e-5)
    assert 20 < steps and exact.epsilon.upper <= 3.0 == pytest.approx(budget.epsilon(1e-5))
    before = budget.save()
    with pytest.raises(discreet.Error, match="PRIVACY_BUDGET_EXCEEDED"):
        budget.spend(rho)
    assert budget.save() == before and filters.ZcdpFilter.restore(before) == budget
    assert budget.spent >= steps * rho * (1 - 1e-15) and budget.spent <= budget.budget


def test_an_rdp_filter_goes_on_while_one_order_can_pay():
    budget = filters.RdpFilter(orders=[8.0, 16.0], epsilon=3.0, delta=1e-5)
    assert budget.orders == [8.0, 16.0] and min(budget.budgets) > 0
    budget.spend([math.inf, budget.budgets[1] / 2])
    assert budget.spent[0] == math.inf and budget.admits(np.array([0.0, budget.budgets[1] / 4]))
    assert not budget.admits([0.0, budget.budgets[1]])
    with pytest.raises(discreet.Error, match="INVALID_INPUT"):
        budget.spend([0.1])
    assert filters.RdpFilter.restore(budget.save()) == budget


def test_the_odometer_may_be_read_at_any_time():
    odometer = filters.ZcdpOdometer(first_budget=0.1, delta=1e-5)
    readings = [odometer.epsilon]
    for _ in range(20):
        odometer.spend(0.05)
        readings.append(odometer.epsilon)
    assert readings[0] == 0 and readings == sorted(readings)
    assert odometer.phase == 5 and odometer.delta == 1e-5
    # Never below the bound for a time fixed in advance: rho + 2 sqrt(rho log(1/delta)).
    assert readings[-1] >= 1 + 2 * math.sqrt(math.log(1e5))
    assert filters.ZcdpOdometer.restore(odometer.save()) == odometer


def test_each_record_pays_for_itself():
    each = filters.IndividualFilters(records=4, budget=1.0)
    spends = np.array([0.4, 0.6, 0.0, 2.0])
    spends.setflags(write=False)
    assert each.update(spends).tolist() == [True, True, True, False]
    assert each.update(spends).tolist() == [True, False, True, False]
    some = each.update(np.array([0.25, 0.1]), np.array([1, 3], dtype=np.uint64))
    assert some.tolist() == [True, True] and some.dtype == bool
    assert each.spent == pytest.approx([0.8, 0.85, 0.0, 0.1], rel=3e-15, abs=0)
    assert np.all(each.spent <= each.budget)
    again = filters.IndividualFilters.restore(each.spent, each.budget)
    assert np.array_equal(again.spent, each.spent)
    assert again.update(spends).tolist() == each.update(spends).tolist()


def test_spent_is_a_view_that_cannot_be_written_and_outlives_its_owner():
    each = filters.IndividualFilters(records=2, budget=1.0)
    spent = each.spent
    each.update(np.array([0.25, 0.5]))
    assert spent == pytest.approx([0.25, 0.5]) and not spent.flags.writeable
    del each
    assert spent == pytest.approx([0.25, 0.5])


@pytest.mark.parametrize("spends, records", [
    (np.array([0.1]), None), (np.array([0.1, math.nan]), None), (np.array([0.1, -0.1]), None),
    (np.array([1, 1]), None), (np.zeros((2, 2))[:, 0], None), ([0.1, 0.1], None),
    (np.array([0.1, 0.1]), np.array([0, 0], dtype=np.uint64)),
    (np.array([0.1]), np.array([2], dtype=np.uint64)),
    (np.array([0.1]), np.array([0], dtype=np.int64)),
])
def test_bad_spends_are_refused_and_change_nothing(spends, records):
    each = filters.IndividualFilters(records=2, budget=1.0)
    with pytest.raises(discreet.Error, match="INVALID_INPUT"):
        each.update(spends, records)
    assert each.spent.tolist() == [0.0, 0.0]


# ---------------------------------------------------------------- other samplers

def test_balls_and_bins_reference_values():
    # Monte Carlo and independent prototypes: discreet/accounting/sampling/balls_and_bins_test.cpp.
    schedule = [(1.0, 1000, 10)]
    assert amplification.allocation_epsilon(
        schedule, delta=1e-5, direction="remove").upper == pytest.approx(0.46447, rel=2e-3)
    assert amplification.allocation_epsilon(
        schedule, delta=1e-5, direction="add").upper == pytest.approx(0.45130, rel=2e-3)
    both = amplification.allocation_epsilon(schedule, delta=1e-5)
    assert both.lower <= 0.46455 and 0.46440 <= both.upper
    back = amplification.allocation_delta(schedule, epsilon=both.upper)
    assert back.lower <= 1e-5 * (1 + 1e-2) and back.upper >= 0.97e-5


def test_one_batch_is_the_plain_gaussian():
    exact = discreet.account(sampling_rate=1, noise_multiplier=2.0, steps=3, delta=1e-5).epsilon
    binned = amplification.allocation_epsilon([(2.0, 1, 2), (2.0, 1, 1)], delta=1e-5)
    assert binned.lower <= exact.upper and exact.lower <= binned.upper
    shuffled = amplification.shuffled_epsilon(noise_multiplier=2.0, batches=1, epochs=3,
                                              delta=1e-5, adjacency="zero_out")
    assert shuffled.upper == pytest.approx(exact.upper, rel=1e-9)


def test_shuffled_epochs_earn_nothing():
    zero = amplification.shuffled_epsilon(noise_multiplier=5.0, batches=1000, epochs=10,
                                          delta=1e-5, adjacency="zero_out")
    replace = amplification.shuffled_epsilon(noise_multiplier=5.0, batches=1000, epochs=10,
                                             delta=1e-5, adjacency="replace_one")
    assert (round(zero.upper, 2), round(replace.upper, 2)) == (2.59, 5.76)
    with pytest.raises(discreet.Error, match="add_remove"):
        amplification.shuffled_epsilon(noise_multiplier=5.0, batches=1000, epochs=10, delta=1e-5,
                                       adjacency="add_remove")


def test_a_batch_that_is_never_cut_is_poisson():
    poisson = discreet.account(sampling_rate=0.01, noise_multiplier=1.0, steps=100, delta=1e-5)
    cut = amplification.truncated_poisson_epsilon(
        sampling_rate=0.01, batch=300, population=10_000, noise_multiplier=1.0, steps=100,
        delta=1e-5)
    assert cut.lower <= poisson.epsilon.upper and poisson.epsilon.lower <= cut.upper
    assert cut.upper == pytest.approx(poisson.epsilon.upper, rel=3e-3)
    tighter = amplification.truncated_poisson_epsilon(
        sampling_rate=0.01, batch=100, population=10_000, noise_multiplier=1.0, steps=100,
        delta=1e-5)
    assert tighter.upper > cut.upper


def test_a_fixed_batch_of_everybody_is_the_gaussian_at_twice_the_sensitivity():
    exact = discreet.account(sampling_rate=1, noise_multiplier=4.0, steps=5, delta=1e-5,
                             adjacency="replace_one").epsilon
    fixed = amplification.fixed_size_epsilon(sampling_rate=1.0, noise_multiplier=4.0, steps=5,
                                             delta=1e-5)
    assert fixed.lower <= exact.upper and exact.lower <= fixed.upper
    assert fixed.upper == pytest.approx(exact.upper, rel=3e-3)


def test_shuffled_messages_never_cost_more_than_alone():
    many = amplification.shuffle_model_epsilon(records=10**6, epsilon0=1.0, delta=1e-6)
    alone = amplification.shuffle_model_epsilon(records=1, epsilon0=1.0, delta=1e-6)
    noisy = amplification.shuffle_model_epsilon(records=10**6, epsilon0=1.0, delta=1e-6,
                                                delta0=1e-14)
    assert many.upper < noisy.upper < 0.01 and 0.9 < alone.upper <= 1.0


@pytest.mark.parametrize("change, named", [
    ({"delta": 0.0}, "delta"), ({"delta": math.nan}, "delta"), ({"direction": "up"}, "up"),
    ({"relative_width": 0.0}, "width"), ({"schedule": []}, "epoch"),
    ({"schedule": [(1.0, 0, 1)]}, "0"),
    ({"schedule": [(1.0, 1, -1)]}, "-1"), ({"schedule": [(math.nan, 1, 1)]}, "nan"),
])
def test_bad_questions_are_refused(change, named):
    question = {"schedule": [(1.0, 10, 1)], "delta": 1e-5} | change
    with pytest.raises(discreet.Error, match=named):
        amplification.allocation_epsilon(question.pop("schedule"), **question)


def test_groups_of_records_are_certified_and_calibrated_for():
    run = dict(sampling_rate=0.01, noise_multiplier=1.0, steps=1000)
    four = discreet.account(**run, delta=1e-5, group_size=4)
    # A contour integral of exact moments (tests/golden/accounting/group_epsilon.py).
    assert four.epsilon.lower <= 8.8991878706855 <= four.epsilon.upper < 8.902
    assert four.epsilon.upper > 4 * discreet.account(**run, delta=1e-5).epsilon.upper
    assert discreet.account(**run, epsilon=four.epsilon.upper, group_size=4).delta.lower <= 1e-5
    noise = discreet.calibrate(sampling_rate=0.01, steps=1000, target_epsilon=2, delta=1e-5,
                               group_size=4)
    assert noise.epsilon.upper <= 2 and noise.noise_multiplier > 2
    books = discreet.Accountant("rdp").compose(STEP, 1000)
    assert books.group_epsilon(1e-5, 4).epsilon == four.epsilon
    with pytest.raises(discreet.Error, match="fixed_size"):
        discreet.Accountant("pld").compose(
            Event(Gaussian(1.0), events.FixedSize(10, 1000))).group_epsilon(1e-5, 2)
    for bad in (0, -1, 2.5):
        with pytest.raises(discreet.Error, match="group_size"):
            discreet.account(**run, delta=1e-5, group_size=bad)
