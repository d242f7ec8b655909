"""Runs with presolve: the answer is an assignment of the original problem, and the bound holds for it."""

from itertools import product

import numpy as np
import pytest
from support.runs import presolving_small_problems

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.config.configuration import parse
from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.solving.planning import presolve as presolve_problem

HARD = -np.inf


@pytest.fixture
def even_small():
    """Presolve problems although their eliminations are faster than presolve."""
    with presolving_small_problems() as patch:
        yield patch


@pytest.fixture
def always_presolve(even_small):
    """Presolve every problem, also if nothing is known to be removable."""
    even_small.setattr(presolve_problem, "estimate_presolve_gain", lambda dense: 1.0)


def random_problem(seed, agents=1, whole=True):
    rng = np.random.default_rng(seed)
    n = 7
    factors = []
    for scope in [(i, i + 1) for i in range(n - 1)] + [(0, 3), (2, 5), (1, 6), (0, 2, 4)]:
        table = rng.integers(-9, 9, (3,) * len(scope)).astype(float)
        table += 0.0 if whole else rng.random(table.shape)
        table[rng.random(table.shape) < 0.35] = HARD
        factors.append(Factor.of(scope, table))
    owner = (np.arange(n) * agents // n).tolist()
    return Problem(
        tuple("abcdefg"), [3] * n, tuple(f"a{i}" for i in range(agents)), owner, (*factors, Factor.of((), 5))
    )


def optimum_of(problem):
    evaluations = [problem.evaluate(np.array(v)) for v in product(range(3), repeat=problem.n_variables)]
    return max((w.objective for w in evaluations if not w.violation), default=None)


@pytest.mark.parametrize("seed", range(8))
def test_the_proof_holds_for_the_original_problem(always_presolve, seed):
    problem = random_problem(seed, agents=1 + seed % 3, whole=seed % 2 == 0)
    result, optimum = dmcmc.solve(problem, method="exact"), optimum_of(problem)
    assert result.status == ("infeasible" if optimum is None else "optimal")
    assert result.exit_code == (3 if optimum is None else 0)
    if optimum is not None:
        assert result.objective == pytest.approx(optimum, rel=1e-12)
        assert problem.evaluate(result.assignment).objective == result.objective
        assert result.bound >= optimum - 1e-9
        assert sum(agent.variables for agent in result.agents) == problem.n_variables


def soft_network(seed, agents=3, hidden=6, size=3):
    """Return agents in a ring, each with a tree of hidden variables, without hard constraints."""
    rng = np.random.default_rng(seed)
    factors, owner = [], np.repeat(np.arange(agents), hidden + 1).tolist()
    for a in range(agents):
        first = a * (hidden + 1)
        scopes = [(first, first + 1), *((first + 1 + int(rng.integers(k)), first + 1 + k) for k in range(1, hidden))]
        scopes += [(first, ((a + 1) % agents) * (hidden + 1)), (first + hidden,)]
        factors += [Factor.of(scope, rng.integers(-9, 9, (size,) * len(scope))) for scope in scopes]
    names = tuple(f"x{v}" for v in range(len(owner)))
    return Problem(names, [size] * len(owner), tuple(f"a{i}" for i in range(agents)), owner, tuple(factors))


@pytest.mark.parametrize("seed", range(4))
def test_hidden_variables_are_eliminated_without_hard_constraints(even_small, seed):
    problem = soft_network(seed)
    without_presolve, result = dmcmc.solve(problem, presolve="none"), dmcmc.solve(problem)
    assert without_presolve.presolve is None and result.presolve.eliminated + result.presolve.fixed >= 3 * 6
    assert (result.status, result.objective) == ("optimal", without_presolve.objective)
    assert problem.evaluate(result.assignment).objective == without_presolve.objective


def test_a_problem_without_promised_gain_is_not_presolved(even_small):
    rng = np.random.default_rng(0)
    pairs = [(a, b) for a in range(8) for b in range(a + 1, 8) if (a < 4) == (b < 4) or b == a + 4]
    factors = tuple(Factor.of(pair, rng.integers(-9, 9, (4, 4))) for pair in pairs)
    problem = Problem(tuple("abcdefgh"), [4] * 8, ("me", "you"), [0] * 4 + [1] * 4, factors)
    assert dmcmc.solve(problem).presolve is None


def test_the_result_reports_what_presolve_removed(always_presolve):
    chain = [Factor.of((i, i + 1), np.arange(9).reshape(3, 3) % (i + 2)) for i in range(6)]
    problem = Problem(tuple("abcdefg"), [3] * 7, ("me",), [0] * 7, tuple(chain))
    result, plan = dmcmc.solve(problem), dmcmc.plan(problem)
    assert result.presolve is not None
    assert result.presolve.eliminated + result.presolve.fixed + result.presolve.free == 7
    assert plan.presolve.startswith("7 variables and 6 factors to 0")
    assert dmcmc.solve(problem, presolve="none").presolve is None


def test_contradictory_constraints_end_the_run(always_presolve):
    different = np.where(np.eye(2, dtype=bool), HARD, 0)
    triangle = tuple(Factor.of(pair, different) for pair in ((0, 1), (1, 2), (0, 2)))
    problem = Problem(tuple("abc"), [2] * 3, ("me", "you"), [0, 0, 1], triangle)
    result = dmcmc.solve(problem, timeout=5)
    assert (result.status, result.exit_code, result.assignment) == ("infeasible", 3, None)
    assert dmcmc.plan(problem).presolve.startswith("no assignment satisfies")


def sudoku(clues):
    """Return a sudoku with nine automata per line: each value at most once."""
    lines = [[9 * r + c for c in range(9)] for r in range(9)] + [[9 * r + c for r in range(9)] for c in range(9)]
    lines += [[27 * a + 3 * b + 9 * r + c for r in range(3) for c in range(3)] for a in range(3) for b in range(3)]

    def once(value):
        return lambda place, seen, x: (seen + (x == value), None if seen and x == value else 0)

    factors = [unroll(line, [9] * 9, 0, once(v)) for line in lines for v in range(9)]
    for cell, clue in enumerate(clues):
        if clue != ".":
            factors.append(Factor.of((cell,), [0 if x + 1 == int(clue) else HARD for x in range(9)]))
    return Problem(tuple(f"x{i}" for i in range(81)), [9] * 81, ("me",), [0] * 81, tuple(factors))


CLUES = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"


def test_a_sudoku_is_solved_by_propagation():
    result = dmcmc.solve(sudoku(CLUES))
    assert result.status == "optimal"
    grid = [result.assignment[f"x{i}"] for i in range(81)]
    assert all(len({grid[9 * r + c] for c in range(9)}) == 9 for r in range(9))
    assert result.presolve.inconsistent > 300


def test_propagation_proves_a_sudoku_infeasible():
    result = dmcmc.solve(sudoku(CLUES[:2] + "1" + CLUES[3:]))
    assert (result.status, result.exit_code) == ("infeasible", 3)


def test_presolve_is_a_key_of_the_problem_section():
    assert parse({"problem": {"generator": "random", "presolve": "none"}}).presolve == "none"
    assert parse({"problem": {"file": "a.npz", "presolve": "auto"}}).presolve == "auto"
    with pytest.raises(ConfigError, match=r"problem\.presolve: expected auto, merge or none, got 'some'"):
        parse({"problem": {"file": "a.npz", "presolve": "some"}})
