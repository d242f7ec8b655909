"""A session with a time budget: bounds and sampled values continue after changes, and stay sound."""

import itertools

import numpy as np
import pytest

import dmcmc


def chain(seed, agents=3):
    """Return a chain of agents with one shared and two hidden variables each."""
    rng, builder = np.random.default_rng(seed), dmcmc.Problem.build()
    for a in range(agents):
        names = [f"s{a}", f"h{a}", f"g{a}"]
        for name in names:
            builder.variable(name, 3, agent=f"a{a}")
        for pair in itertools.combinations(names, 2):
            builder.factor(pair, rng.integers(0, 50, (3, 3)), name="-".join(pair))
    for a in range(agents - 1):
        builder.factor((f"s{a}", f"s{a + 1}"), rng.integers(0, 50, (3, 3)), name=f"link{a}")
    return builder.problem()


def optimum(problem):
    return dmcmc.solve(problem, method="exact").objective


@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_sound_after_any_sequence_of_changes(seed):
    rng = np.random.default_rng(seed)
    session = dmcmc.Session(chain(seed), presolve="none", method="annealing", bound="triangles", runs=1, samples=1)
    for number in range(4):
        result, best = session.solve(timeout=300), optimum(session.problem)
        assert result.objective <= best <= result.bound
        assert result.status == "optimal" and result.objective == best
        assert number == 0 or session.reused.bounds + session.reused.tables >= 2
        with session.changes() as changes:
            for factor in rng.choice(len(session.problem.factors), 2, replace=False).tolist():
                shape = session.problem.factors[factor].shape
                table = np.where(rng.random(shape) < 0.1, -np.inf, rng.integers(0, 50, shape))
                changes.set_table(factor, table)


def test_the_first_bound_is_the_last_one_plus_what_the_change_can_add():
    session = dmcmc.Session(chain(7), presolve="none", method="annealing", bound="triangles", runs=1, samples=1)
    last = session.solve(timeout=300)
    session.set_table("link0", session.problem.factors[-2].table + 1)
    result = session.solve(timeout=300)
    assert result.bound == result.objective == last.objective + 1
    known = [point.bound for point in result.trace if point.found_by == "last run"]
    assert not known or known[0] <= last.bound + 1
