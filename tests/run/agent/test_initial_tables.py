"""Test that the first tables take a limited part of the time, however long the budget is."""

import time

import pytest
from support.runs import hard_problem, start_run

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.auto.choose import FIRST_SHARE, FIRST_TABLE_TIME, sampled_choice
from dmcmc.samplers.auto.survey import SAMPLER
from dmcmc.solving import local_tables
from dmcmc.solving.local_tables import _exact_end, _first_allowance, _first_sampling

PROBLEM = hard_problem(variables=6, domain=4)


def setup_of(budget, monkeypatch, sampled=(), seconds=1e-3, method="auto"):
    """Return a plan at its start, on a stopped clock; some agents are sampled, others exact at some cost."""
    made = start_run(PROBLEM, local={"method": method}, budget={"time": budget}, device="cpu", search="none").setup
    choices = {a: choice._replace(method="exact", seconds=seconds) for a, choice in enumerate(made.choices)}
    for a in sampled:
        choices[a] = sampled_choice(made.surveys[a], SAMPLER, "", made.limits, made.rates)._replace(first_bound=1e6)
    now = time.perf_counter()
    monkeypatch.setattr(local_tables, "_now", lambda: now)
    return made.with_choices(choices).with_stop(Deadline(now + budget)), now


@pytest.mark.parametrize("budget", [1.0, FIRST_TABLE_TIME, 1000.0])
def test_first_samples_and_bounds_share_five_seconds_or_a_quarter_of_a_longer_budget(budget, monkeypatch):
    setup, _ = setup_of(budget, monkeypatch, sampled=[0, 1])
    soon = min(budget, max(FIRST_TABLE_TIME, budget / 4))
    assert _first_sampling(setup, None, lambda agents: None).seconds == pytest.approx(
        local_tables.SAMPLING_SHARE * soon
    )
    agents = [type("One", (), {"local": local, "awaits_relaxation": False})() for local in setup.division.locals]
    each = list(_first_allowance(setup, agents).seconds)
    assert sum(each) == pytest.approx(FIRST_SHARE * soon)
    monkeypatch.setattr(local_tables, "agents_with_relaxation_in_time", lambda agents, backend: agents[:1])
    assert _first_allowance(setup, agents).seconds == [min(each[0], local_tables.MIN_FIRST_BOUND_SECONDS), *each[1:]]


@pytest.mark.parametrize(("sampled", "seconds", "method", "share"), [
    ([], 1.0, "auto", 800.0),  # no agent waits
    ([0], 1e-3, "auto", FIRST_TABLE_TIME / 2), ([0], 100.0, "auto", 200.0), ([0], 400.0, "auto", 500.0),
    ([0], 1e-3, "exact", 500.0),  # the configured method
])  # fmt: skip
def test_eliminations_are_given_up_sooner_if_other_agents_wait(sampled, seconds, method, share, monkeypatch):
    setup, now = setup_of(1000.0, monkeypatch, sampled, seconds, method)
    assert _exact_end(setup) - now == pytest.approx(share)
