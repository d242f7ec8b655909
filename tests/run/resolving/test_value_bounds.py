"""Bounds on max-marginals contain those of brute force, and end in time where no junction tree fits."""

import json
import math
from itertools import product

import pytest
from support import naive
from support.problem_strategies import random_problem

import dmcmc
from dmcmc.cli.main import main
from dmcmc.config.keywords import settings_from
from dmcmc.run.resolving import value_bounds
from dmcmc.run.resolving.value_bounds import timed_max_marginals

CALENDAR = (
    "calendar: Team\nfirst_day: 2027-03-01\ndays: 1\nhours: 09:00-11:00\nslot: 30\npeople: {Ann: , Bob: }\n"
    "meetings: {A: {people: [Ann, Bob]}, B: {people: [Ann, Bob], prefer: {before 10:00: 1}}, C: {people: [Bob]}}\n"
)


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
    monkeypatch.setattr(value_bounds, "_TREE_BYTES_PER_SECOND", 0.1)


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
