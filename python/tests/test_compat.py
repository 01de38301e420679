"""Drop-in accountants and imports. What is compared with Opacus or dp-accounting itself is skipped
where they are not installed; stand-ins with their shape are always tested."""

import copy
import dataclasses
import math
import pickle
import subprocess
import sys
import types

import pytest

import discreet
from discreet import compat
from discreet.events import Event, FixedSize, Gaussian, Laplace, Poisson

KINDS = [compat.PLDAccountant, compat.RDPAccountant, compat.GDPAccountant]
RUN = [(1.0, 0.01, 1000)]
EPSILON = 1.828236666515  # of RUN at delta 1e-5; tests/golden/accounting


def after(kind, history):
    accountant = kind()
    accountant.history = list(history)
    return accountant


# ---------------------------------------------------------------- the shape of Opacus

@pytest.mark.parametrize("kind", KINDS)
def test_steps_make_a_history_and_a_certified_epsilon(kind):
    accountant = kind()
    assert accountant.get_epsilon(1e-5) == 0 and len(accountant) == 0
    for _ in range(1000):
        accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    assert accountant.history == RUN and (len(accountant), accountant.steps) == (1, 1000)
    epsilon = accountant.get_epsilon(1e-5)
    assert isinstance(epsilon, float) and EPSILON <= epsilon <= 1.2 * EPSILON
    accountant.step(noise_multiplier=2.0, sample_rate=0.01)
    accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    assert accountant.history == RUN + [(2.0, 0.01, 1), (1.0, 0.01, 1)]
    assert accountant.get_epsilon(delta=1e-5) > epsilon


def test_answers_follow_the_history_when_it_is_replaced():
    accountant = compat.PLDAccountant()
    histories = [RUN, [(1.0, 0.01, 999)], [(1.0, 0.01, 1100), (3.0, 0.2, 2)], [], [(9.0, 1.0, 3)],
                 [(3.0, 0.2, 1), (1.0, 0.01, 5), (3.0, 0.2, 1)]]
    for history in histories + histories[::-1]:
        accountant.history = history
        fresh = compat.from_opacus_history(history).epsilon(1e-6)
        assert accountant.get_account(1e-6) == fresh
        assert accountant.get_epsilon(1e-6) == fresh.epsilon.upper


def test_asking_changes_nothing():
    accountant = after(compat.PLDAccountant, RUN)
    assert accountant.get_epsilon(1e-5) == accountant.get_epsilon(1e-5)
    assert accountant.history == RUN


def test_gdp_returns_the_bound_and_not_the_central_limit_value():
    accountant = after(compat.GDPAccountant, [(0.6, 0.001, 10_000)])
    truth = compat.from_opacus_history(accountant.history).epsilon(1e-5).epsilon
    account = accountant.get_account(1e-5)
    assert account.clt_epsilon_not_a_bound < 1.51 < 2.45 < truth.lower
    assert accountant.get_epsilon(1e-5) == account.epsilon.upper >= truth.upper


def test_no_noise_is_recorded_as_no_privacy():
    accountant = compat.RDPAccountant()
    accountant.step(noise_multiplier=0.0, sample_rate=0.1)
    accountant.step(noise_multiplier=5.0, sample_rate=0.1)
    assert accountant.get_epsilon(1e-5) == math.inf
    with pytest.raises(discreet.Error, match="0"):
        compat.from_opacus_history(accountant.history)
    other = compat.PLDAccountant()
    other.load_state_dict(accountant.state_dict())
    assert other.get_epsilon(1e-5) == math.inf


def test_accuracy_settings_are_accepted_and_another_sampler_is_not():
    accountant = after(compat.PLDAccountant, RUN)
    assert accountant.get_epsilon(1e-5, eps_error=0.1, delta_error=1e-9, alphas=[2, 3]) < 1.83
    rdp, gdp = after(compat.RDPAccountant, RUN), after(compat.GDPAccountant, RUN)
    assert rdp.get_epsilon(1e-5, [2, 3]) == rdp.get_epsilon(1e-5)
    assert gdp.get_epsilon(1e-5, True) == gdp.get_epsilon(1e-5)
    for ask in (lambda: gdp.get_epsilon(1e-5, False), lambda: gdp.get_epsilon(1e-5, poisson=False),
                lambda: accountant.get_epsilon(1e-5, poisson=False)):
        with pytest.raises(discreet.Error, match="poisson"):
            ask()


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_is_that_of_opacus(kind):
    accountant = after(kind, RUN)
    state = accountant.state_dict()
    assert state == {"history": RUN, "mechanism": kind.mechanism()}
    accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    assert state["history"] == RUN  # a copy
    into = {"epoch": 3}
    assert accountant.state_dict(into) is into and into["epoch"] == 3

    other = kind()
    other.load_state_dict(state)
    assert other.history == RUN
    other.step(noise_multiplier=1.0, sample_rate=0.01)
    assert other.get_epsilon(1e-5) == accountant.get_epsilon(1e-5) and state["history"] == RUN


def test_a_checkpoint_of_opacus_is_continued():
    accountant = compat.PLDAccountant()
    accountant.load_state_dict({"history": [[1.0, 0.01, 1000]], "mechanism": "prv"})
    assert accountant.get_epsilon(1e-5) == pytest.approx(EPSILON, abs=1e-9)


@pytest.mark.parametrize("state, named", [
    (None, "history"), ({}, "history"), ({"history": RUN}, "mechanism"),
    ({"mechanism": "rdp"}, "history"), ({"history": RUN, "mechanism": "matrix"}, "matrix"),
    ({"history": [(1.0, 0.01)], "mechanism": "rdp"}, "0.01"),
    ({"history": [(1.0, 2.0, 3)], "mechanism": "rdp"}, "2"),
    ({"history": [(-1.0, 0.5, 3)], "mechanism": "rdp"}, "-1"),
    ({"history": [(1.0, 0.5, -3)], "mechanism": "rdp"}, "-3"),
])
def test_a_bad_state_is_refused_and_changes_nothing(state, named):
    accountant = after(compat.RDPAccountant, RUN)
    with pytest.raises(discreet.Error) as caught:
        accountant.load_state_dict(state)
    assert named in caught.value.sentence and accountant.history == RUN


@pytest.mark.parametrize("step", [
    {"noise_multiplier": -1.0, "sample_rate": 0.1}, {"noise_multiplier": 1.0, "sample_rate": 1.1},
    {"noise_multiplier": math.nan, "sample_rate": 0.1},
    {"noise_multiplier": 1.0, "sample_rate": 0.0},
])
def test_a_bad_step_is_refused_and_changes_nothing(step):
    accountant = after(compat.PLDAccountant, RUN)
    with pytest.raises(discreet.Error, match="INVALID_DP_CONFIG"):
        accountant.step(**step)
    assert accountant.history == RUN


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan, -1.0])
@pytest.mark.parametrize("history", [[], RUN, [(0.0, 0.1, 1)]])
def test_a_bad_delta_is_refused(history, delta):
    with pytest.raises(discreet.Error, match="delta"):
        after(compat.PLDAccountant, history).get_epsilon(delta)


def test_the_hook_records_accumulated_steps():
    accountant = compat.PLDAccountant()
    hook = accountant.get_optimizer_hook_fn(sample_rate=0.01)
    hook(types.SimpleNamespace(noise_multiplier=1.5, accumulated_iterations=4))
    hook(types.SimpleNamespace(noise_multiplier=1.5, accumulated_iterations=4))
    assert accountant.history == [(1.5, 0.04, 2)]


def test_an_accountant_is_copied_and_pickled():
    accountant = after(compat.PLDAccountant, RUN)
    wanted = accountant.get_epsilon(1e-5)
    for other in (copy.deepcopy(accountant), pickle.loads(pickle.dumps(accountant))):
        assert other.get_epsilon(1e-5) == wanted
        other.step(noise_multiplier=1.0, sample_rate=0.01)
        assert other.get_epsilon(1e-5) > wanted == accountant.get_epsilon(1e-5)


def test_neither_library_is_imported():
    program = ("import sys, discreet.compat; sys.exit(any(name in sys.modules for name in "
               "('opacus', 'dp_accounting', 'torch')))")
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# ---------------------------------------------------------------- event trees of dp-accounting

def stand_in(name, *fields):
    return dataclasses.make_dataclass(name, fields)


NoOp = stand_in("NoOpDpEvent")
GaussianDp = stand_in("GaussianDpEvent", "noise_multiplier")
LaplaceDp = stand_in("LaplaceDpEvent", "noise_multiplier")
Composed = stand_in("ComposedDpEvent", "events")
SelfComposed = stand_in("SelfComposedDpEvent", "event", "count")
PoissonSampled = stand_in("PoissonSampledDpEvent", "sampling_probability", "event")
WithoutReplacement = stand_in("SampledWithoutReplacementDpEvent", "source_dataset_size",
                              "sample_size", "event")
Truncated = stand_in("TruncatedSubsampledGaussianDpEvent", "dataset_size", "sampling_probability",
                     "truncated_batch_size", "noise_multiplier")
ZCDp = stand_in("ZCDpEvent", "rho", "xi")
NonPrivate = stand_in("NonPrivateDpEvent")


def test_a_tree_is_composed():
    step = PoissonSampled(0.01, GaussianDp(1.0))
    tree = Composed([NoOp(), SelfComposed(Composed([step, SelfComposed(step, 4)]), 199),
                     SelfComposed(step, 5), SelfComposed(GaussianDp(0.1), 0)])
    assert compat.from_dp_event(tree).epsilon(1e-5) == compat.from_opacus_history(RUN).epsilon(1e-5)


def test_nothing_spends_nothing():
    for tree in (NoOp(), Composed([]), PoissonSampled(0.1, NoOp()), SelfComposed(NoOp(), 5)):
        assert compat.events_of_dp_event(tree) == []
        assert compat.from_dp_event(tree).epsilon(1e-5).epsilon == discreet.Interval(0, 0)


def test_every_event_has_its_translation():
    sampled = WithoutReplacement(100, 10, GaussianDp(2.0))
    assert compat.events_of_dp_event(GaussianDp(2.0)) == [(Event(Gaussian(2.0)), 1)]
    assert compat.events_of_dp_event(LaplaceDp(2.0)) == [(Event(Laplace(2.0)), 1)]
    assert compat.events_of_dp_event(PoissonSampled(0.5, LaplaceDp(2.0))) == [
        (Event(Laplace(2.0), Poisson(0.5)), 1)]
    for adjacency in ("add_remove", "replace_one"):
        assert compat.events_of_dp_event(SelfComposed(sampled, 3), adjacency=adjacency) == [
            (Event(Gaussian(2.0), FixedSize(10, 100), adjacency=adjacency), 3)]
    (truncated, count), = compat.events_of_dp_event(Truncated(100, 0.1, 15, 2.0))
    assert str(truncated) == "truncated_poisson gaussian under add_remove" and count == 1
    assert truncated.sampling.batch == 15 and truncated.sampling.population == 100


def test_laplace_is_bounded_by_rdp_and_refused_by_pld():
    epsilon = compat.from_dp_event(LaplaceDp(2.0), accountant="rdp").epsilon(1e-9).epsilon
    assert epsilon.upper == pytest.approx(0.5, abs=0.01) and epsilon.upper <= 0.51
    with pytest.raises(discreet.Error, match="laplace"):
        compat.from_dp_event(LaplaceDp(2.0))


def test_batches_of_fixed_size_and_truncated_batches_are_bounded():
    # Add/remove: Poisson at half the noise.
    fixed = SelfComposed(WithoutReplacement(60_000, 600, GaussianDp(2.0)), 1000)
    epsilon = compat.from_dp_event(fixed).epsilon(1e-5).epsilon
    assert epsilon.lower <= EPSILON * (1 + 1e-9) and epsilon.upper == pytest.approx(EPSILON)
    replaced = compat.from_dp_event(fixed, adjacency="replace_one").epsilon(1e-5)
    assert replaced.adjacency == "replace_one" and replaced.epsilon.upper > epsilon.upper
    # A batch that is practically never cut is Poisson.
    whole = SelfComposed(Truncated(10_000, 0.01, 300, 1.0), 1000)
    assert compat.from_dp_event(whole).epsilon(1e-5).epsilon.upper == pytest.approx(EPSILON,
                                                                                    rel=3e-3)


def test_releases_of_one_sample_are_one_gaussian():
    # Four of multiplier 2 in one sample are one of multiplier 1; four samples are not.
    together = SelfComposed(PoissonSampled(0.01, SelfComposed(GaussianDp(2.0), 4)), 1000)
    apart = SelfComposed(PoissonSampled(0.01, GaussianDp(2.0)), 4000)
    epsilon = compat.from_dp_event(together).epsilon(1e-5).epsilon
    assert epsilon.lower <= EPSILON * (1 + 1e-9) and epsilon.upper == pytest.approx(EPSILON)
    assert compat.from_dp_event(apart).epsilon(1e-5).epsilon.upper < 1.5


@pytest.mark.parametrize("tree, named", [
    (ZCDp(0.1, 0.0), "ZCDpEvent"), (NonPrivate(), "NonPrivateDpEvent"), (3, "int"),
    (Composed([GaussianDp(1.0), NonPrivate()]), "NonPrivateDpEvent"),
    (SelfComposed(NonPrivate(), 0), "NonPrivateDpEvent"),
    (PoissonSampled(0.1, NonPrivate()), "NonPrivateDpEvent"),
    (PoissonSampled(0.1, PoissonSampled(0.1, GaussianDp(1.0))), "PoissonSampledDpEvent"),
    (PoissonSampled(0.1, Composed([GaussianDp(1.0), LaplaceDp(1.0)])), "not all are Gaussian"),
    (PoissonSampled(0.1, SelfComposed(GaussianDp(1.0), 10**9)), "1000000000"),
    (SelfComposed(GaussianDp(1.0), -1), "-1"), (GaussianDp(0.0), "0"),
    (PoissonSampled(0.0, GaussianDp(1.0)), "0"), (GaussianDp(math.nan), "nan"),
])
def test_what_is_not_understood_is_refused_by_name(tree, named):
    with pytest.raises(discreet.Error) as caught:
        compat.from_dp_event(tree)
    assert named in caught.value.sentence


# ---------------------------------------------------------------- the libraries themselves

HISTORIES = [RUN, [(1.5, 0.04, 2250)], [(0.8, 0.01, 500), (1.2, 0.02, 300)]]


@pytest.fixture
def opacus():
    return pytest.importorskip("opacus.accountants", exc_type=ImportError)


@pytest.fixture
def dp_accounting():
    return pytest.importorskip("dp_accounting", exc_type=ImportError)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("history", HISTORIES)
def test_not_above_opacus_and_as_certified(opacus, history):
    delta = 1e-5
    pld = compat.from_opacus_history(history).epsilon(delta).epsilon
    prv = opacus.PRVAccountant()
    prv.load_state_dict(after(compat.PLDAccountant, history).state_dict() | {"mechanism": "prv"})
    assert pld.upper <= prv.get_epsilon(delta) < pld.upper + 0.02
    rdp = opacus.RDPAccountant()
    rdp.load_state_dict(after(compat.RDPAccountant, history).state_dict())
    ours = after(compat.RDPAccountant, history).get_epsilon(delta)
    assert ours <= rdp.get_epsilon(delta) <= 1.001 * ours


@pytest.mark.filterwarnings("ignore")
def test_the_histories_are_alike(opacus):
    for ours, theirs in ((compat.PLDAccountant(), opacus.PRVAccountant()),
                         (compat.RDPAccountant(), opacus.RDPAccountant())):
        for noise in (1.0, 1.0, 2.0, 1.0):
            ours.step(noise_multiplier=noise, sample_rate=0.25)
            theirs.step(noise_multiplier=noise, sample_rate=0.25)
        assert ours.history == theirs.history and len(ours) == len(theirs)
        assert ours.state_dict().keys() == theirs.state_dict().keys()
        missing = [name for name in dir(opacus.IAccountant) if not name.startswith("_")
                   and not hasattr(ours, name)]
        assert missing == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("by_name", [False, True])
def test_an_opacus_run_keeps_its_books_here(opacus, by_name, tmp_path):
    import torch
    from opacus import PrivacyEngine

    compat.register_with_opacus()
    engine = PrivacyEngine(accountant="pld" if by_name else "prv")
    if not by_name:
        engine.accountant = compat.PLDAccountant()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=8), max_grad_norm=1.0,
        target_epsilon=3.0, target_delta=1e-5, epochs=2)
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    (noise, rate, steps), = engine.accountant.history
    assert (noise, rate, steps) == (optimizer.noise_multiplier, 1 / 8, 16)
    assert 2.9 < engine.get_epsilon(1e-5) <= 3.0
    engine.save_checkpoint(path=tmp_path / "checkpoint", module=model, optimizer=optimizer)
    wanted, engine.accountant = engine.get_epsilon(1e-5), compat.PLDAccountant()
    engine.load_checkpoint(path=tmp_path / "checkpoint", module=model, optimizer=optimizer)
    assert engine.get_epsilon(1e-5) == wanted


@pytest.mark.filterwarnings("ignore")
def test_the_accountants_of_opacus_can_be_replaced_by_name(opacus, monkeypatch):
    registry = sys.modules["opacus.accountants.registry"]
    monkeypatch.setattr(registry, "_ACCOUNTANTS", dict(registry._ACCOUNTANTS))
    compat.register_with_opacus(replace=True)
    kinds = [type(opacus.create_accountant(name)) for name in ("pld", "prv", "rdp", "gdp")]
    assert kinds == [compat.PLDAccountant, compat.PLDAccountant, compat.RDPAccountant,
                     compat.GDPAccountant]


@pytest.mark.filterwarnings("ignore")
def test_a_real_event_tree_is_read(dp_accounting):
    dp = dp_accounting
    step = dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.0))
    tree = dp.ComposedDpEvent([dp.SelfComposedDpEvent(step, 1000), dp.GaussianDpEvent(20.0),
                               dp.NoOpDpEvent()])
    ours = compat.from_dp_event(tree).epsilon(1e-5).epsilon
    theirs = dp.pld.PLDAccountant().compose(tree).get_epsilon(1e-5)
    assert ours.lower <= theirs and ours.upper <= theirs < ours.upper + 1e-2
    rdp = dp.rdp.RdpAccountant().compose(tree).get_epsilon(1e-5)
    assert ours.upper < compat.from_dp_event(tree, accountant="rdp").epsilon(1e-5).epsilon.upper
    assert compat.from_dp_event(tree, accountant="rdp").epsilon(1e-5).epsilon.upper <= rdp


@pytest.mark.filterwarnings("ignore")
def test_every_class_of_events_is_read_or_refused(dp_accounting):
    dp = dp_accounting.dp_event
    inner = dp.GaussianDpEvent(1.0)
    read = [dp.NoOpDpEvent(), inner, dp.LaplaceDpEvent(1.0), dp.ComposedDpEvent([inner]),
            dp.SelfComposedDpEvent(inner, 2), dp.PoissonSampledDpEvent(0.1, inner),
            dp.SampledWithoutReplacementDpEvent(100, 10, inner),
            dp.TruncatedSubsampledGaussianDpEvent(100, 0.1, 15, 1.0)]
    refused = [dp.ZCDpEvent(0.1), dp.NonPrivateDpEvent(), dp.UnsupportedDpEvent(),
               dp.RandomizedResponseDpEvent(0.5, 2), dp.DiscreteLaplaceDpEvent(1.0, 1),
               dp.SampledWithReplacementDpEvent(10, 2, inner),
               dp.SingleEpochTreeAggregationDpEvent(1.0, 4),
               dp.RepeatAndSelectDpEvent(inner, 2.0, 1.0),
               dp.MixtureOfGaussiansDpEvent(1.0, [1.0], [1.0])]
    known = {type(event).__name__ for event in read + refused}
    assert known == {kind.__name__ for kind in dp.DpEvent.__subclasses__()}
    for event in read:
        assert len(compat.events_of_dp_event(event)) == (event != dp.NoOpDpEvent())
    for event in refused:
        with pytest.raises(discreet.Error, match=type(event).__name__):
            compat.events_of_dp_event(event)
