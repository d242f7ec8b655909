"""Bounds on max-marginals contain those of brute force, and end in time where no junction tree fits."""

import json
import math
from itertools import product

import pytest
from msgspec.structs import replace
from support import naive
from support.problem_strategies import random_problem

import dmcmc
from dmcmc.algorithms.choice import choose_algorithm
from dmcmc.cli.main import main
from dmcmc.config.make_settings import settings_from
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.questions import max_marginals as value_bounds
from dmcmc.questions import one_agent
from dmcmc.questions.max_marginals import timed_max_marginals

CALENDAR = (
    "calendar: Team\nfirst_day: 2027-03-01\ndays: 1\nhours: 09:00-11:00\nslot: 30\npeople: {Ann: , Bob: }\n"
    "meetings: {A: {people: [Ann, Bob]}, B: {people: [Ann, Bob], prefer: {before 10:00: 1}}, C: {people: [Bob]}}\n"
)
NOTHING = {"status": "timeout", "objective": None, "bound": None, "assignment": None}


def best_with_each_value(problem):
    """Return the best utility of an allowed assignment with each value, −∞ without one."""
    best = {(v, x): -math.inf for v, size in enumerate(problem.domains.tolist()) for x in range(size)}
    for values in product(*map(range, problem.domains.tolist())):
        utility = naive.utility(problem, values)
        for pair in enumerate(values):
            best[pair] = max(best[pair], utility)
    return best


@pytest.fixture
def no_tree(monkeypatch):
    """Leave no memory for a junction tree."""

    def refuse(*_):
        raise ResourceError("the tree does not fit")

    monkeypatch.setattr(value_bounds, "marginals", refuse)


def test_every_interval_contains_the_max_marginal_of_brute_force(no_tree):
    bounded = 0
    for seed in range(16):
        sense = ("max", "min")[seed % 2]
        problem = random_problem(seed, variables=4, domain=3, factors=6, hard=0.3, sense=sense)
        found = timed_max_marginals(problem, settings_from(None, {"timeout": 3}))
        expected = best_with_each_value(problem)
        optimum = max(expected.values(), default=None)
        assert (found.status == "infeasible") == (naive.optimum(problem) == -math.inf)
        if found.status != "bounded" or optimum is None:
            continue
        bounded += 1
        assert problem.to_own_sense(found.objective) <= optimum
        for (v, x), best in expected.items():
            interval = found.intervals[problem.variables[v]][problem.label(v, x)]
            if interval.objective is not None:
                assert problem.to_own_sense(interval.objective) <= best
            if interval.bound is not None:
                assert problem.to_own_sense(interval.bound) >= best
            if interval.proven:
                proven = -math.inf if interval.objective is None else problem.to_own_sense(interval.objective)
                assert proven == best
    assert bounded >= 5


def test_the_search_with_a_root_for_each_value_gives_the_max_marginals(no_tree, monkeypatch):
    monkeypatch.setattr(one_agent, "answers_by_elimination", lambda *_: None)
    results, solve = [], choose_algorithm.solve_as_configured

    def solve_once(*given):
        """Solve the problem without a fixed value; find nothing about problems with one."""
        results.append(replace(results[0], **NOTHING) if results else solve(*given))
        return results[-1]

    monkeypatch.setattr(choose_algorithm, "solve_as_configured", solve_once)
    for seed in (2, 5):
        results.clear()
        problem = dmcmc.generate("random", agents=1, variables_per_agent=5, domain_size=3, seed=seed)
        found = dmcmc.max_marginals(problem, problem.variables[:1], timeout=600)
        expected = best_with_each_value(problem)
        for x, (_, interval) in enumerate(found.intervals[problem.variables[0]].items()):
            best = expected[0, x]
            assert interval.bound is None or interval.bound >= best
            assert interval.objective == (None if best == -math.inf else best)


def test_python_functions_answer_for_the_asked_variables():
    problem = random_problem(3, variables=5, domain=3, hard=0.0)
    name, expected = problem.variables[2], best_with_each_value(problem)
    found = dmcmc.max_marginals(problem, [name])
    assert list(found.marginals) == [name]
    assert list(found.marginals[name].values()) == [expected[2, x] for x in range(int(problem.domains[2]))]
    with pytest.raises(dmcmc.DmcmcError, match="variable 'nobody' does not exist"):
        dmcmc.max_marginals(problem, ["nobody"])
    assert dmcmc.conflict(problem).status == "feasible"


def test_a_query_names_variables_with_commas_between_them(tmp_path, capsys):
    path = tmp_path / "p.wcsp"
    path.write_text("p 3 2 2 9\n2 2 2\n2 0 1 0 1\n1 1 3\n2 1 2 0 1\n0 1 2\n")
    names = dmcmc.load(path).variables
    command = ["solve", str(path), "--task", "max-marginals", "--json", "--query"]
    assert main([*command, f"{names[2]}, {names[0]}"]) == 0
    assert list(json.loads(capsys.readouterr().out)["marginals"]) == [names[2], names[0]]
    assert main([*command, "nobody"]) == 2
    assert "neither a file nor a variable is called 'nobody'" in capsys.readouterr().err


def test_a_tree_that_fits_gives_exact_values():
    problem = random_problem(7, variables=6, domain=3)
    found = timed_max_marginals(problem, settings_from(None, {"timeout": 60}))
    assert found.status in ("exact", "infeasible") and not found.intervals


def test_asked_variables_are_proven_first(no_tree):
    problem = dmcmc.generate("random", agents=2, variables_per_agent=3, domain_size=3, seed=2)
    name = problem.variables[-1]
    found = timed_max_marginals(problem, settings_from(None, {"timeout": 20}), [name])
    assert found.status == "bounded"
    assert all(interval.proven for interval in found.intervals[name].values())


def test_the_command_line_bounds_the_values_of_a_calendar_in_time(tmp_path, capsys, no_tree):
    path = tmp_path / "team.yaml"
    path.write_text(CALENDAR)
    options = ["solve", str(path), "--task", "max-marginals", "--timeout", "10", "--device", "cpu"]
    assert main(options) == 0
    assert "bounds for each value, within the time limit" in capsys.readouterr().out
    assert main([*options, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["status"], data["objective"]) == ("bounded", 1)
    assert set(data["intervals"]["Ann: B"]["Mon 1 Mar 09:00"]) == {"objective", "bound", "proven"}
