"""An agent that was left to sampling is eliminated later: nothing is decided once for good."""

import pytest
from rich.console import Console
from support import soundness
from support.runs import Slow, answer, begun, finished, hard_problem

import dmcmc
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.report.summary import summary
from dmcmc.run import rank_run
from dmcmc.run.agent.agent import Agent
from dmcmc.run.improvers.recombine import LARGER
from dmcmc.run.scheduler.directive import Directive
from dmcmc.run.scheduler.proposal import COMBINE, ELIMINATE, Grant
from dmcmc.samplers import registry
from dmcmc.samplers.auto.choose import sampled_choice
from dmcmc.samplers.auto.survey import SAMPLER

PROBLEM = hard_problem(variables=8, domain=6)


def sampled(setup):
    """The same with all agents left to sampling."""
    choices = [sampled_choice(work, SAMPLER, "made up", setup.limits, setup.rates) for work in setup.surveys]
    return setup.changed(dict(enumerate(choices)))


def test_agents_left_to_sampling_are_eliminated_when_there_is_time():
    run = begun(PROBLEM, change=sampled, local={"bound": "none"}, budget={"time": 600.0}, device="cpu")
    result = finished(run)  # without a bound nothing else proves it
    assert result.status == "optimal" and result.objective == soundness.optimum(PROBLEM)
    assert "exact" in {agent.method for agent in result.agents}
    assert ELIMINATE in {done.kind for done in result.work}


def test_a_method_that_was_asked_for_is_not_given_up():
    result = answer(PROBLEM, local={"method": SAMPLER, "bound": "dual"}, budget={"time": 0.5}, device="cpu")
    assert [agent.method for agent in result.agents] == [SAMPLER] * 2
    assert ELIMINATE not in {done.kind for done in result.work}


def test_an_elimination_that_was_given_up_stays_on_the_list_with_its_price(clock):
    offered = []

    def direct(directive):
        offered.append([grant for grant in directive.grants if grant.kind == ELIMINATE])
        return directive._replace(stop=True)

    run = begun(PROBLEM, change=lambda setup: Slow.for_agents(setup, [0, 1], clock), budget={"time": 600}, device="cpu")
    result = finished(run, direct)
    assert all(agent.in_vain > 0 and agent.price is not None for agent in run.agents.values())
    (work,) = [done for done in result.work if done.kind == ELIMINATE]
    assert work.seconds == pytest.approx(sum(agent.in_vain for agent in run.agents.values()))
    assert result.objective <= soundness.optimum(PROBLEM) <= result.bound


def test_an_elimination_that_fails_at_once_is_dearer_each_time_so_that_others_have_their_time(monkeypatch):
    tried = []

    def fail(self, problems, sampling):
        tried.append(len(problems))
        raise OutOfMemory("no room")

    run = begun(PROBLEM, change=sampled, local={"bound": "none"}, budget={"time": 1.5}, device="cpu")
    monkeypatch.setattr(type(registry.get("exact")), "solve", fail)
    result = finished(run)
    assert 1 <= len(tried) <= 40  # as often as a price can be doubled until it is more than there is, of two agents
    assert sum(done.seconds for done in result.work if done.kind in ("sample", "search")) > 0.8


@pytest.mark.parametrize(("seconds", "later"), [(0.01, 4.0), (2.0, 2.0), (7.0, 7.0)])
def test_what_was_given_up_before_it_took_what_it_should_takes_twice_as_much(seconds, later):
    agent = Agent(None, None, None, None, price=2.0)
    agent.give_up(seconds)
    assert agent.in_vain == later
    agent.give_up(0.0)
    assert agent.in_vain == 2 * later


def test_larger_combinations_that_take_too_long_leave_all_as_it_was(monkeypatch):
    run = begun(PROBLEM, local={"method": "exact"}, budget={"time": 600.0}, device="cpu")
    run.first_tables()
    before = run.combine()
    run.agree(before)

    def late(*arguments):
        assert arguments[-1] == LARGER
        raise OutOfTime("late")

    monkeypatch.setattr(rank_run, "run_cycle", late)
    run.improve(Directive(False, grants=(Grant(COMBINE, None, 0.1),)))
    assert run.combine() is before
    assert not [offer for offer in run._offers(before) if offer.kind == COMBINE]


def test_what_is_offered_is_told_before_and_what_it_brought_after():
    plan = dmcmc.plan(PROBLEM, timeout=0.001, device="cpu")
    told = {offer.split()[0] for offer in plan.later}
    assert {"search", ELIMINATE, "sample", "bound"} <= told
    assert f"then, by what gains most a second: {'; '.join(plan.later)}" in " ".join(str(plan).split())
    assert dmcmc.plan(PROBLEM, device="cpu").later == ()
    result = answer(PROBLEM, budget={"time": 1.0}, device="cpu")
    console = Console(width=100)
    with console.capture() as capture:
        console.print(summary(result))
    text = capture.get()
    assert all(f"\n {done.kind} " in text or f"\n{done.kind} " in text for done in result.work)
    brought = {kind for point in result.trace for kind in point.by.split(", ")}
    assert brought <= told | {"combine", "prune"} and {done.kind for done in result.work} <= told | {"combine"}
