"""`optimal` is a proof: integers are equal to their bound, floats as near as this problem's rounding lets them be."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.runs import answer

from dmcmc import Factor, Problem
from dmcmc.config.keywords import settings_from
from dmcmc.results.result import gap_of
from dmcmc.run.whole_problem.mini_bucket_solve import solve_single_agent

LOOSE = {"method": "mini-bucket", "z": 2, "moment_matching": False}
EXACT = {"method": "exact"}


def clique(tables, agents=1, sense="max", constants=()):
    """Four variables, all joined in pairs, and constants; the variables belong to one agent after the other."""
    pairs = [(i, j) for j in range(4) for i in range(j)]
    factors = [Factor.of(pair, table, sense) for pair, table in zip(pairs, tables, strict=True)]
    factors += [Factor.of((), constant, sense) for constant in constants]
    names = tuple("wxyz"), tuple("ab"[:agents])
    return Problem(names[0], np.full(4, 3), names[1], np.arange(4) % agents, tuple(factors), sense=sense)


def random_tables(seed, floats=False, most=100):
    rng = np.random.default_rng(seed)
    return [rng.uniform(0, most, (3, 3)) if floats else rng.integers(0, most, (3, 3)) for _ in range(6)]


def solved(problem, combine):
    """By one agent if there is one, else over messages."""
    if problem.n_agents == 1:
        return solve_single_agent(problem, settings_from(None, {"combine": combine}))
    return answer(problem, local={"method": "exact"}, combine=combine)


def check(problem, result, slack=Fraction(0)):
    """Nothing is claimed that is not so: `optimal` is optimal, the bound holds, the objective is attained."""
    best = naive.optimum(problem, exact=True)
    if result.status == "infeasible":
        assert best == -naive.INFINITY
        return
    sign = 1 if problem.sense == "max" else -1
    if result.bound is not None:
        assert sign * Fraction(result.bound) >= best
    if result.objective is not None:
        attained = naive.utility(problem, problem.values_of(result.assignment), exact=True)
        assert attained > -naive.INFINITY
        assert result.status != "optimal" or best - attained <= slack


def slack_of(problem):
    """What twice the rounding of a float problem's sums may hide; nothing in integers."""
    tables = [f.table for f in problem.factors if f.scope]
    if all(t.dtype.kind == "i" for t in tables):
        return Fraction(0)
    total = sum(Fraction(max(abs(x) for x in t.ravel().tolist() if x > -np.inf)) for t in tables)
    return 16 * len(problem.factors) * total / 2**53


@pytest.mark.parametrize("constant", [0, 10**15, -(10**15), 2**62, 0.1, 1e17])
@pytest.mark.parametrize("agents", [1, 2])
def test_a_constant_does_not_close_a_gap(constant, agents):
    """10^15 more, and a gap of a tenth of the range was 10^-14 of the objective: that was called optimal."""
    found = set()
    for seed in range(12):
        for floats in (False, True):
            tables = random_tables(seed, floats)
            bare, moved = clique(tables, agents), clique(tables, agents, constants=(constant,))
            without, result = solved(bare, LOOSE), solved(moved, LOOSE)
            check(moved, result, slack_of(moved))
            assert (result.status, result.assignment) == (without.status, without.assignment)
            found.add(result.status)
    assert found == {"optimal", "feasible"}


def test_integers_beyond_the_floats_are_equal_or_not_optimal():
    top = 2**53 + 1
    tables = [np.zeros((3, 3), dtype=np.int64) for _ in range(6)]
    tables[0][:] = top
    tables[1:4] = [np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0]])] * 3
    tables[4] = tables[5] = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    result = solved(clique(tables), LOOSE)
    assert result.objective is not None and result.bound is not None
    assert (result.status == "optimal") == (result.objective == result.bound)
    check(clique(tables), result)
    assert solved(clique(tables), EXACT).status == "optimal"


@pytest.mark.parametrize("agents", [1, 2])
def test_small_costs_do_not_close_a_gap(agents):
    """A gap of a tenth of costs of 10^-12 was less than 10^-9 of 1."""
    statuses = set()
    for seed in range(8):
        tables = [1e-12 * t for t in random_tables(seed, True, 1.0)]
        loose = solved(clique(tables, agents, "min"), LOOSE)
        check(clique(tables, agents, "min"), loose, slack_of(clique(tables)))
        statuses.add(loose.status)
        assert solved(clique(tables, agents, "min"), EXACT).status == "optimal"
    assert "feasible" in statuses


@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("sense", ["max", "min"])
def test_exact_answers_on_mixed_magnitudes_are_optimal(agents, sense):
    for seed in range(8):
        tables = random_tables(seed, True, 1e-3)
        tables[seed % 6] = tables[seed % 6] * 1e19 + 1e16
        problem = clique(tables, agents, sense, constants=(1e16, -1e16, 1e-3))
        result = solved(problem, EXACT)
        assert result.status == "optimal"
        check(problem, result, slack_of(problem))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    floats=st.booleans(),
    agents=st.sampled_from([1, 2]),
    sense=st.sampled_from(["max", "min"]),
    power=st.integers(-40, 40),
    constants=st.lists(st.one_of(st.integers(-(2**62), 2**62), st.floats(-1e300, 1e300), st.floats(-1, 1)), max_size=3),
    z=st.sampled_from([2, 3]),
)
def test_constants_and_powers_of_two_never_change_what_is_called_optimal(
    seed, floats, agents, sense, power, constants, z
):
    combine = {"method": "mini-bucket", "z": z, "moment_matching": False}
    tables = random_tables(seed, floats, 8)
    first = solved(clique(tables, agents, sense), combine)
    scaled = [t * 2.0**power if floats else t * 2 ** abs(power) for t in tables]
    problem = clique(scaled, agents, sense, tuple(constants))
    result = solved(problem, combine)
    check(problem, result, slack_of(problem))
    assert (result.status, result.assignment) == (first.status, first.assignment)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    agents=st.sampled_from([1, 2]),
    scales=st.lists(st.sampled_from([1e-300, 1e-12, 1e-3, 1.0, 1e9, 1e16, 1e200]), min_size=6, max_size=6),
)
def test_brute_force_agrees_with_every_optimal(seed, agents, scales):
    tables = [scale * table for scale, table in zip(scales, random_tables(seed, True, 1.0), strict=True)]
    problem = clique(tables, agents)
    for combine in (EXACT, LOOSE):
        check(problem, solved(problem, combine), slack_of(problem))


def test_the_gap_of_numbers_beyond_all_floats_is_a_number_or_nothing():
    assert gap_of(10**400, 2 * 10**400) == 1.0
    assert gap_of(10**400, 10**400 + 1) == 0.0  # and yet not proven: only the status says that
    assert gap_of(0, 10**400) is None
    assert gap_of(0.5, 10**400) is None
