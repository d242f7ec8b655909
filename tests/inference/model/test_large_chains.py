"""Automata whose chains of tables would be large are searched as they are, and relaxed for bounds."""

from itertools import product

import numpy as np
import pytest
from support import naive

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.calendars.file.person_rules import free_run
from dmcmc.inference import tuning
from dmcmc.inference.model import densify as densify_module
from dmcmc.inference.model import problem as problem_module
from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.model.densify import densify
from dmcmc.inference.presolve.presolve import presolve
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError

MEMORY = 1 << 30


@pytest.fixture
def large(monkeypatch):
    """Let no chain be small enough."""
    for module in (densify_module, problem_module):
        monkeypatch.setattr(module, "MAX_CHAIN_ENTRIES", 0)
    monkeypatch.setattr(tuning, "MAX_EXAMINED_ENTRIES", 0)


def random_automaton(rng, n=4, size=3, floats=False):
    """Return an automaton with random transitions, of which a quarter is forbidden."""
    following = rng.integers(0, 4, (n, 4, size))
    utility = rng.normal(size=(n, 4, size)) if floats else rng.integers(-5, 6, (n, 4, size))
    is_forbidden = rng.random((n, 4, size)) < 0.25

    def step(i, state, x):
        return int(following[i, state, x]), None if is_forbidden[i, state, x] else utility[i, state, x].item()

    return unroll(range(n), [size] * n, 0, step, name="automaton")


def drawn(seed, floats=False):
    rng = np.random.default_rng(seed)
    factors = [random_automaton(rng, floats=floats)]
    factors += [Factor.of((v, (v + 1) % 4), rng.integers(-5, 6, (3, 3))) for v in range(4)]
    return Problem(tuple("abcd"), [3] * 4, ("p",), [0] * 4, tuple(factors))


@pytest.mark.parametrize("floats", [False, True])
def test_the_upper_bound_of_an_automaton_is_its_largest_entry(floats):
    for seed in range(60):
        factor = random_automaton(np.random.default_rng(seed), floats=floats)
        entries = [u for x in product(range(3), repeat=4) if (u := factor.entry(x)) is not None]
        bound, best = factor.upper_bound().table.item(), max(entries, default=None)
        if best is None:
            assert bound in (-np.inf, np.iinfo(np.int32).min)
        else:
            assert bound == pytest.approx(best, abs=1e-12) and bound >= best
            assert floats or bound == best


def test_a_relaxed_problem_bounds_every_assignment(large):
    for seed in range(20):
        problem = drawn(seed)
        assert problem.has_large_chains and not problem.tabular
        relaxed = densify(problem, MEMORY, relax=True).problem
        assert relaxed.n_variables == 4 and relaxed.dense
        for x in product(range(3), repeat=4):
            assert naive.utility(relaxed, x) >= naive.utility(problem, x)


def test_the_answer_satisfies_the_automaton_and_its_bound_is_valid(large):
    for seed in range(4):
        problem = drawn(seed)
        best = max(naive.utility(problem, x) for x in product(range(3), repeat=4))
        result = dmcmc.solve(problem)
        assert result.bound is None or result.bound >= best
        if best > -np.inf:
            assert problem.evaluate(result.assignment) == (best, 0)
        assert result.status != "optimal" or result.bound == best
        reduction = presolve(problem, MEMORY)
        assert reduction.infeasible or len(reduction.problem.factors) == len(problem.factors)


def test_chains_are_charged_together_before_they_are_written_and_look_at_the_deadline():
    rng, factors = np.random.default_rng(0), []
    for _ in range(8):
        weights = [rng.integers(0, 50, 60) for _ in range(12)]
        factors.append(
            unroll(range(12), [60] * 12, 0, lambda i, s, x, w=weights: ((s + int(w[i][x])) % 97, 0 if s else x))
        )
    problem = Problem([f"x{i}" for i in range(12)], [60] * 12, ("p",), [0] * 12, tuple(factors))
    one = 4 * sum(factors[0].chain_sizes)
    assert densify(problem, 9 * one).n_original == 12
    with pytest.raises(ResourceError, match=r"as a chain of tables: needs .* with all others"):
        densify(problem, 6 * one)
    with pytest.raises(OutOfTime):
        densify(problem, 9 * one, stop=Deadline(0))


def test_a_free_run_has_one_state_per_set_of_runs_that_are_left():
    taken = [np.array([0, *(((1 << length) - 1) << s for s in range(13 - length))]) for length in (1, 2, 4, 1)]
    factor = free_run(range(4), taken, 12, 6, "lunch")
    runs = [0b111111 << s for s in range(7)]
    for x in product(*(range(0, t.size, 3) for t in taken)):
        bits = np.bitwise_or.reduce([t[i] for t, i in zip(taken, x, strict=True)])
        assert (factor.entry(x) is None) == all(bits & run for run in runs)
    assert max(factor.states) <= 28  # the runs that are left are consecutive: 7 · 8 / 2 sets
