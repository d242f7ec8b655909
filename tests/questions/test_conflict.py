"""Conflicts are infeasible and minimal, by brute force; relaxations have the best objective without the constraint."""

import math
from dataclasses import replace
from itertools import product

from support import naive
from support.problem_strategies import random_problem

import dmcmc
from dmcmc.cli.main import main
from dmcmc.config.make_settings import settings_from
from dmcmc.inference.presolve.minimal_conflict import minimal_conflict
from dmcmc.questions.conflict import find_conflict


def is_infeasible(problem, factors):
    return naive.optimum(replace(problem, factors=tuple(factors))) == -math.inf


def infeasible_problems(count):
    """Yield infeasible problems with named factors."""
    seed = 0
    while count:
        problem = random_problem(seed, variables=5, domain=3, factors=9, hard=0.6)
        named = tuple(f.renamed(f.scope, f"c{i}") for i, f in enumerate(problem.factors))
        seed += 1
        if problem.n_variables and is_infeasible(problem, named):
            count -= 1
            yield replace(problem, factors=named)


def test_conflicts_of_200_random_problems_are_minimal():
    for problem in infeasible_problems(200):
        factors = problem.factors

        def fails(items, problem=problem, factors=factors):
            return is_infeasible(problem, [factors[i] for i in items])

        found = minimal_conflict(len(factors), fails)
        assert found.is_minimal and fails(found.items)
        assert not any(fails([j for j in found.items if j != i]) for i in found.items)


def test_unfinished_tests_leave_a_conflict_that_may_not_be_minimal():
    for known in product([True, None], repeat=3):
        answers = iter(known * 9)
        found = minimal_conflict(6, lambda items, answers=answers: next(answers) if {1, 4} <= {*items} else False)
        assert {1, 4} <= set(found.items)
        assert found.is_minimal <= (found.items == [1, 4])


def test_solved_conflicts_are_minimal_and_relaxations_are_optimal():
    for problem in infeasible_problems(10):
        found = find_conflict(problem, settings_from(None, {}))
        by_name = {f.name: f for f in problem.factors}
        conflict = [by_name[name] for name in found.constraints]
        assert found.status == "infeasible" and found.minimal and is_infeasible(problem, conflict)
        assert not any(is_infeasible(problem, [g for g in conflict if g is not f]) for f in conflict)
        for relaxation in found.relaxations:
            changed = by_name[relaxation.constraint]
            table = naive.utilities(changed.table)
            table[table == -math.inf] = 0
            relaxed = dmcmc.Factor.of(changed.scope, table.astype(float))
            best = naive.optimum(
                replace(problem, factors=tuple(relaxed if f is changed else f for f in problem.factors))
            )
            assert relaxation.objective == (None if best == -math.inf else best)


def test_a_feasible_problem_has_no_conflict():
    problem = dmcmc.generate("random", agents=2, variables_per_agent=3, domain_size=2)
    found = find_conflict(problem, settings_from(None, {}))
    assert (found.status, found.constraints, found.exit_code) == ("feasible", (), 0)


def test_the_command_line_names_the_constraints(tmp_path, capsys):
    path = tmp_path / "p.yaml"
    rule = "  {0}{1}: {{type: intention, function: 'float(\"inf\") if {0} == {1} else 0'}}\n"
    path.write_text(
        "name: p\nobjective: min\ndomains: {d: {values: [0, 1]}}\n"
        "variables: {a: {domain: d}, b: {domain: d}, c: {domain: d}}\nagents: [x]\nconstraints:\n"
        + "".join(rule.format(*pair) for pair in ("ab", "bc", "ac"))
    )
    assert main(["solve", str(path), "--task", "conflict", "--device", "cpu"]) == 3
    text = capsys.readouterr().out
    assert "3 constraints cannot hold together (no smaller set of them)" in text
    assert "bc: objective 0 without it" in text
