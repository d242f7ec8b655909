"""Test that sampled agents are eliminated later, if there is time for it."""

import pytest
from rich.console import Console
from support import soundness
from support.runs import SlowBackend, finish_run, hard_problem, solve_with, start_run

import dmcmc
from dmcmc.anytime.scheduler.proposal import Allocation, Directive
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.report.summary import result_summary as summary
from dmcmc.results.result import BOUND, EXACT_ELIMINATION, LOCAL_SEARCH, RECOMBINATION, SAMPLING
from dmcmc.samplers import registry
from dmcmc.samplers.auto.choose import SAMPLER, sampled_choice
from dmcmc.solving import rank_tables
from dmcmc.solving.agent.agent import Agent
from dmcmc.tuning.run import TABLE_GROWTH_FACTOR

PROBLEM = hard_problem(variables=8, domain=6)


def sampled(setup):
    """Return the plan with all agents sampled."""
    choices = [sampled_choice(work, SAMPLER, "made up", setup.limits, setup.rates) for work in setup.surveys]
    return setup.with_choices(dict(enumerate(choices)))


def test_sampled_agents_are_eliminated_if_there_is_time():
    run = start_run(PROBLEM, change=sampled, local={"bound": "none"}, budget={"time": 600.0}, device="cpu")
    result = finish_run(run)  # without a bound there is no other proof
    assert result.status == "optimal" and result.objective == soundness.optimum(PROBLEM)
    assert "exact" in {agent.method for agent in result.agents}
    assert EXACT_ELIMINATION in {done.improver for done in result.work}


def test_a_configured_method_is_not_replaced():
    result = solve_with(PROBLEM, local={"method": SAMPLER, "bound": "dual"}, budget={"time": 0.5}, device="cpu")
    assert [agent.method for agent in result.agents] == [SAMPLER] * 2
    assert EXACT_ELIMINATION not in {done.improver for done in result.work}


def test_an_elimination_that_was_given_up_is_proposed_again_with_its_cost(clock):
    allocated = []

    def stop_after_first(directive):
        allocated.append([one for one in directive.allocations if one.improver == EXACT_ELIMINATION])
        return directive._replace(stop=True)

    run = start_run(
        PROBLEM, change=lambda setup: SlowBackend.for_agents(setup, [0, 1], clock), budget={"time": 600}, device="cpu"
    )
    result = finish_run(run, stop_after_first)
    assert all(
        agent.failed_elimination_seconds > 0 and agent.elimination_seconds is not None
        for agent in run.tables.agents.values()
    )
    (work,) = [done for done in result.work if done.improver == EXACT_ELIMINATION]
    assert work.seconds == pytest.approx(sum(agent.failed_elimination_seconds for agent in run.tables.agents.values()))
    assert result.objective <= soundness.optimum(PROBLEM) <= result.bound


def test_the_cost_of_an_elimination_doubles_with_each_early_failure(monkeypatch):
    tried = []

    def fail(self, problems, sampling):
        tried.append(len(problems))
        raise OutOfMemory("no memory")

    run = start_run(PROBLEM, change=sampled, local={"bound": "none"}, budget={"time": 1.5}, device="cpu")
    monkeypatch.setattr(type(registry.get("exact")), "solve", fail)
    result = finish_run(run)
    assert 1 <= len(tried) <= 40  # doublings of two agents' costs until they exceed the time
    assert sum(done.seconds for done in result.work if done.improver in (SAMPLING, LOCAL_SEARCH)) > 0.8


@pytest.mark.parametrize(("seconds", "later"), [(0.01, 4.0), (2.0, 2.0), (7.0, 7.0)])
def test_an_elimination_that_failed_earlier_than_estimated_costs_twice_as_much(seconds, later):
    agent = Agent(None, None, None, None, elimination_seconds=2.0)
    agent.give_up(seconds)
    assert agent.failed_elimination_seconds == later
    agent.give_up(0.0)
    assert agent.failed_elimination_seconds == 2 * later


def test_a_larger_combination_that_takes_too_long_changes_nothing(monkeypatch):
    run = start_run(PROBLEM, local={"method": "exact"}, budget={"time": 600.0}, device="cpu")
    run.first_tables()
    before = run.combine()
    run.agree(before)

    def run_late(*arguments):
        assert arguments[3].size_factor == TABLE_GROWTH_FACTOR
        raise OutOfTime("late")

    monkeypatch.setattr(rank_tables, "message_scheme", run_late)
    run.improve(Directive(False, allocations=(Allocation(RECOMBINATION, None, 0.1),)))
    assert run.combine() is before
    assert not [proposal for proposal in run.work.proposals(before) if proposal.improver == RECOMBINATION]


def test_a_plan_names_the_improvers_and_a_summary_their_gains():
    plan = dmcmc.plan(PROBLEM, timeout=0.001, device="cpu")
    planned = {line.split(":")[0] for line in plan.later}
    assert {LOCAL_SEARCH, EXACT_ELIMINATION, SAMPLING, BOUND} <= planned
    assert f"after the first answer, whichever gains most per second: {'; '.join(plan.later)}" in " ".join(
        str(plan).split()
    )
    assert dmcmc.plan(PROBLEM, device="cpu").later == ()
    result = solve_with(PROBLEM, budget={"time": 1.0}, device="cpu")
    console = Console(width=100)
    with console.capture() as capture:
        console.print(summary(result))
    text = capture.get()
    assert all(f"\n {done.improver} " in text or f"\n{done.improver} " in text for done in result.work)
    named = {kind for point in result.trace for kind in point.found_by.split(", ")}
    assert named <= planned | {RECOMBINATION, "prune"} and {done.improver for done in result.work} <= planned | {
        RECOMBINATION
    }
