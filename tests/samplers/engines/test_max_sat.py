"""MaxSAT as a search engine: its formula has the costs of the problem, and its proofs hold for the utilities."""

import pytest
from support.constraints.engine_problems import constrained_problem, random_problem, utilities_of

import dmcmc
from dmcmc import Problem
from dmcmc.anytime.engines import choose_engine
from dmcmc.config.settings import Budget, Settings
from dmcmc.generators.meetings import BusinessMeetings
from dmcmc.generators.meetings import generate_business_meetings as generate
from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.samplers.max_sat.native_problem import native_problem, suits
from dmcmc.samplers.max_sat.process import MaxSatProcess, available
from dmcmc.samplers.toulbar2.whole_problem import costs_of_compact

pytestmark = pytest.mark.skipif(not available(), reason="needs python-sat")


def costs_of(problem):
    """Return the costs of a problem as the engine takes them."""
    return costs_of_compact(native_problem(problem))


@pytest.mark.parametrize("draw", [random_problem, constrained_problem])
def test_random_problems_are_proven_as_by_brute_force(draw):
    with MaxSatProcess() as engine:
        for seed in range(100):
            problem = draw(seed) if draw is random_problem or seed % 20 == 0 else draw(seed, largest=2)
            utilities, costs = utilities_of(problem), costs_of(problem)
            if not costs.feasible:
                assert not utilities
                continue
            found, best = engine.search(costs, None, 600), max(utilities.values(), default=None)
            assert found.complete and found.ended
            assert (found.values is None) == (best is None)
            if best is not None:
                assert utilities[tuple(found.values.tolist())] == pytest.approx(best, rel=1e-9, abs=1e-9)
                assert costs.bound(found.lower) >= best


def test_a_known_optimum_is_proven_and_a_limit_of_memory_or_time_ends_the_search():
    problem = generate(BusinessMeetings(participants=9, slots=4, tables=3, seed=3))
    costs = costs_of(problem)
    with MaxSatProcess() as engine:
        best = engine.search(costs, None, 600)
        again = engine.search(costs, costs.bound(costs.of(best.values)), 600)
        assert best.complete and again.complete
        assert again.values is None or costs.of(again.values) >= costs.of(best.values)
    large = costs_of(generate(BusinessMeetings(participants=60, slots=12, tables=24, seed=1)))
    with MaxSatProcess(memory=1 << 22) as engine:
        assert not engine.search(large, None, 600).complete
    with MaxSatProcess() as engine:
        assert engine.search(large, None, 1).ended


def test_max_sat_is_chosen_for_few_small_costs(monkeypatch):
    monkeypatch.setattr(choose_engine, "cores", lambda: 2)
    settings = Settings(budget=Budget(time=5.0))
    problem = generate(BusinessMeetings(participants=9, slots=4, tables=3))
    assert suits(problem) and choose_engine.choose_engine(settings, problem) == "max-sat"
    build = Problem.build(sense="min")
    names = [build.variable(f"x{i}", 4) for i in range(6)]
    build.all_different(names[:4]).all_different(names[2:]).factor(names[0], [0, 1, 5, 700])
    assert not suits(build.problem())
    assert choose_engine.choose_engine(settings, build.problem()) == "cp-sat"
    monkeypatch.setattr(choose_engine.max_sat, "available", lambda: False)
    with pytest.raises(Unavailable, match="search: max-sat needs python-sat"):
        dmcmc.solve(problem, search="max-sat")


def test_a_run_ends_with_its_proof():
    problem = generate(BusinessMeetings(participants=9, slots=4, tables=3, seed=2))
    result = dmcmc.solve(problem, method="gibbs", bound="none", search="max-sat", timeout=600)
    assert (result.status, result.objective) == ("optimal", dmcmc.solve(problem, method="exact").objective)
