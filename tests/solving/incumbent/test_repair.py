"""The breakout method without kernels: it reaches feasible assignments, ends when asked, and changes no good ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc import Factor, Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.samplers.local_search.local_search import UncompiledAscent


def planted_problem(seed, variables=14, domain=4, share=0.15, triples=False):
    """Return a problem in which a random assignment is feasible, and that assignment."""
    rng = np.random.default_rng(seed)
    solution, factors = rng.integers(domain, size=variables), []
    for _ in range(3 * variables):
        scope = tuple(rng.choice(variables, size=3 if triples and rng.random() < 0.3 else 2, replace=False).tolist())
        table = rng.integers(0, 50, size=(domain,) * len(scope)).astype(float)
        table[rng.random(table.shape) < share] = -np.inf
        table[tuple(solution[list(scope)])] = 1.0
        factors.append(Factor.of(scope, table))
    names = tuple(f"x{v}" for v in range(variables))
    return Problem(names, [domain] * variables, ("a",), [0] * variables, tuple(factors)), solution


@given(seed=st.integers(0, 10**6), triples=st.booleans())
def test_a_feasible_assignment_is_found(seed, triples):
    problem, _ = planted_problem(seed, triples=triples)
    steps = []
    start, ends = np.zeros(problem.n_variables, dtype=np.int64), lambda: steps.append(1) or len(steps) > 5000
    found = UncompiledAscent(problem, NO_DEADLINE).repair(start, ends)
    assert problem.evaluate(found).violation == 0
    steps.clear()
    again = UncompiledAscent(problem, NO_DEADLINE).repair(start, ends)
    assert again.tolist() == found.tolist(), "the same problem gives the same answer"


def test_it_ends_when_asked_or_when_the_time_is_over():
    factors = [Factor.of((0, 1), np.where(np.eye(2, dtype=bool), -np.inf, 0.0)) for _ in range(2)]
    contradiction = Factor.of((0, 1), np.where(np.eye(2, dtype=bool), 0.0, -np.inf))
    problem = Problem(("x", "y"), [2, 2], ("a",), [0, 0], (*factors, contradiction))
    start, asked = np.zeros(2, dtype=np.int64), []
    found = UncompiledAscent(problem, NO_DEADLINE).repair(start, lambda: asked.append(1) or len(asked) == 50)
    assert len(asked) == 50 and problem.evaluate(found).violation > 0
    over = UncompiledAscent(problem, Deadline(0.0)).repair(start, lambda: pytest.fail("asked after the end"))
    assert over.tolist() == [0, 0]


@given(seed=st.integers(0, 10**6))
def test_a_feasible_assignment_stays_as_it_is(seed):
    problem, solution = planted_problem(seed)
    assert UncompiledAscent(problem, NO_DEADLINE).repair(solution, lambda: False).tolist() == solution.tolist()
