"""Test that the first tables take a limited part of the time, however long the budget is."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.runs import hard_problem, start_run

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.samplers.auto.choose import SAMPLER, sampled_choice
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.contract.tuning import FIRST_TABLE_SECONDS, UNTRIED_SHARE
from dmcmc.solving import local_tables

PROBLEM = hard_problem(variables=6, domain=4)


def run_of(budget, monkeypatch, sampled=(), seconds=1e-3, method="auto"):
    """Return a run at its start and the time of its clock, which stands still an hour ahead.

    Some agents are sampled, and the others are exact at some cost.
    """
    run = start_run(PROBLEM, local={"method": method}, budget={"time": budget}, device="cpu", search="none")
    made, now = run.setup, time.perf_counter() + 3600
    choices = {a: choice._replace(method="exact", seconds=seconds) for a, choice in enumerate(made.choices)}
    for a in sampled:
        choices[a] = sampled_choice(made.surveys[a], SAMPLER, "", made.limits, made.rates)._replace(first_bound=1e6)
    monkeypatch.setattr(local_tables, "time", SimpleNamespace(perf_counter=lambda: now))
    run.setup = made.with_choices(choices).with_stop(Deadline(now + budget))
    return run, now


def seconds_of_bounds(run, monkeypatch):
    """Return the seconds for the first bound of each agent; the run makes its tables until then."""
    budgets = []

    def record(requests, backend, budget, is_tight_enough):
        budgets.append(budget)
        raise OutOfTime("the budget is known")

    monkeypatch.setattr(local_tables, "tighten", record)
    with pytest.raises(OutOfTime, match="the budget is known"):
        run.first_tables()
    return list(budgets[0].seconds)


@pytest.mark.parametrize("budget", [1.0, FIRST_TABLE_SECONDS, 1000.0])
def test_first_samples_and_bounds_share_five_seconds_or_a_quarter_of_a_longer_budget(budget, monkeypatch):
    limits, start = [], ChainSolver.start

    def sample_briefly(solver, problems, sampling):
        limits.append(sampling.seconds)
        return start(solver, problems, replace(sampling, runs=1, samples=1, seconds=0.01))

    monkeypatch.setattr(ChainSolver, "start", sample_briefly)
    run, _ = run_of(budget, monkeypatch, sampled=[0, 1])
    soon = min(budget, max(FIRST_TABLE_SECONDS, budget / 4))
    each = seconds_of_bounds(run, monkeypatch)
    assert limits == [pytest.approx(0.2 * soon)] and sum(each) == pytest.approx(UNTRIED_SHARE * soon)
    monkeypatch.setattr(local_tables, "agents_with_relaxation_in_time", lambda agents, backend: agents[:1])
    run, _ = run_of(budget, monkeypatch, sampled=[0, 1])
    assert seconds_of_bounds(run, monkeypatch) == [min(each[0], 0.02), *each[1:]]


@pytest.mark.parametrize(("sampled", "seconds", "method", "share"), [
    ([], 1.0, "auto", 800.0),  # no agent waits
    ([0], 1e-3, "auto", FIRST_TABLE_SECONDS / 2), ([0], 100.0, "auto", 200.0), ([0], 400.0, "auto", 500.0),
    ([0], 1e-3, "exact", 500.0),  # the configured method
])  # fmt: skip
def test_eliminations_are_given_up_sooner_if_other_agents_wait(sampled, seconds, method, share, monkeypatch):
    ends = []

    def record(agents, sampling, *_, **options):
        ends.append(sampling.backend.stop.until)
        raise OutOfTime("the end is known")

    monkeypatch.setattr(local_tables, "eliminate_in_turn", record)
    run, now = run_of(1000.0, monkeypatch, sampled, seconds, method)
    with pytest.raises(OutOfTime, match="the end is known"):
        run.first_tables()
    assert ends == [pytest.approx(now + share)]
