"""Runs of reduced problems: the answer is one of what was asked, and what is proven holds for that."""

from itertools import product

import numpy as np
import pytest

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.config.configuration import parse
from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.run.presolve import presolve_problem

HARD = -np.inf


@pytest.fixture
def always(monkeypatch):
    """Everything is reduced, however small."""
    monkeypatch.setattr(presolve_problem, "_CHEAP", 0.0)
    monkeypatch.setattr(presolve_problem, "_LITTLE", 0.0)
    monkeypatch.setattr(presolve_problem, "_MUCH", 0.0)


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


def best(problem):
    worths = [problem.evaluate(np.array(v)) for v in product(range(3), repeat=problem.n_variables)]
    return max((w.objective for w in worths if not w.violation), default=None)


@pytest.mark.parametrize("seed", range(8))
def test_the_answer_is_proven_for_what_was_asked(always, seed):
    problem = random_problem(seed, agents=1 + seed % 3, whole=seed % 2 == 0)
    result, optimum = dmcmc.solve(problem, method="exact"), best(problem)
    assert result.status == ("infeasible" if optimum is None else "optimal")
    assert result.exit_code == (3 if optimum is None else 0)
    if optimum is not None:
        assert result.objective == pytest.approx(optimum, rel=1e-12)
        assert problem.evaluate(result.assignment).objective == result.objective
        assert result.bound >= optimum - 1e-9
        assert sum(agent.variables for agent in result.agents) == problem.n_variables


def soft_network(seed, agents=3, hidden=6, size=3):
    """Agents in a ring, a tree of their own hidden variables each; nothing is forbidden."""
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
def test_what_agents_have_to_themselves_is_eliminated_though_nothing_is_forbidden(monkeypatch, seed):
    monkeypatch.setattr(presolve_problem, "_CHEAP", 0.0)
    problem = soft_network(seed)
    plain, result = dmcmc.solve(problem, reduce="none"), dmcmc.solve(problem)
    assert plain.reductions is None and result.reductions.eliminated + result.reductions.fixed >= 3 * 6
    assert (result.status, result.objective) == ("optimal", plain.objective)
    assert problem.evaluate(result.assignment).objective == plain.objective


def test_what_promises_nothing_is_not_reduced(monkeypatch):
    monkeypatch.setattr(presolve_problem, "_CHEAP", 0.0)
    rng = np.random.default_rng(0)
    pairs = [(a, b) for a in range(8) for b in range(a + 1, 8) if (a < 4) == (b < 4) or b == a + 4]
    factors = tuple(Factor.of(pair, rng.integers(-9, 9, (4, 4))) for pair in pairs)
    problem = Problem(tuple("abcdefgh"), [4] * 8, ("me", "you"), [0] * 4 + [1] * 4, factors)
    assert dmcmc.solve(problem).reductions is None


def test_what_was_taken_out_is_told(always):
    chain = [Factor.of((i, i + 1), np.arange(9).reshape(3, 3) % (i + 2)) for i in range(6)]
    problem = Problem(tuple("abcdefg"), [3] * 7, ("me",), [0] * 7, tuple(chain))
    result, plan = dmcmc.solve(problem), dmcmc.plan(problem)
    assert result.reductions is not None
    assert result.reductions.eliminated + result.reductions.fixed + result.reductions.free == 7
    assert plan.reduced.startswith("7 variables and 6 factors to 0")
    assert dmcmc.solve(problem, reduce="none").reductions is None


def test_a_contradiction_ends_a_run(always):
    different = np.where(np.eye(2, dtype=bool), HARD, 0)
    triangle = tuple(Factor.of(pair, different) for pair in ((0, 1), (1, 2), (0, 2)))
    problem = Problem(tuple("abc"), [2] * 3, ("me", "you"), [0, 0, 1], triangle)
    result = dmcmc.solve(problem, timeout=5)
    assert (result.status, result.exit_code, result.assignment) == ("infeasible", 3, None)
    assert dmcmc.plan(problem).reduced.startswith("no assignment satisfies")


def sudoku(clues):
    """Nine automata a line: each value at most once."""
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
    assert result.reductions.inconsistent > 300


def test_a_sudoku_without_a_solution_is_refuted_by_propagation():
    result = dmcmc.solve(sudoku(CLUES[:2] + "1" + CLUES[3:]))
    assert (result.status, result.exit_code) == ("infeasible", 3)


def test_the_key_stands_with_the_problem():
    assert parse({"problem": {"generator": "random", "reduce": "none"}}).reduce == "none"
    assert parse({"problem": {"file": "a.npz", "reduce": "auto"}}).reduce == "auto"
    with pytest.raises(ConfigError, match=r"problem\.reduce: expected auto, merge or none, got 'some'"):
        parse({"problem": {"file": "a.npz", "reduce": "some"}})
