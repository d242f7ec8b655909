"""``optimal`` is a proof: integers equal their bound, and floats are within the rounding error of the problem."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.runs import solve_with

from dmcmc import Factor, Problem
from dmcmc.config.make_settings import settings_from
from dmcmc.questions.mini_buckets import solve_single_agent
from dmcmc.results.outcome import gap_of

MINI_BUCKETS = {"method": "mini-bucket", "z": 2, "moment_matching": False}
EXACT = {"method": "exact"}


def clique(tables, agents=1, sense="max", constants=()):
    """Return a clique of four variables, with constants; the variables belong to the agents in turn."""
    pairs = [(i, j) for j in range(4) for i in range(j)]
    factors = [Factor.of(pair, table, sense) for pair, table in zip(pairs, tables, strict=True)]
    factors += [Factor.of((), constant, sense) for constant in constants]
    names = tuple("wxyz"), tuple("ab"[:agents])
    return Problem(names[0], np.full(4, 3), names[1], np.arange(4) % agents, tuple(factors), sense=sense)


def random_tables(seed, floats=False, high=100):
    rng = np.random.default_rng(seed)
    return [rng.uniform(0, high, (3, 3)) if floats else rng.integers(0, high, (3, 3)) for _ in range(6)]


def solve_combined(problem, combine):
    """Solve as a whole problem if there is one agent, else with messages."""
    if problem.n_agents == 1:
        return solve_single_agent(problem, settings_from(None, {"combine": combine}))
    return solve_with(problem, local={"method": "exact"}, combine=combine)


def check(problem, result, slack=Fraction(0)):
    """Check that an optimal result is optimal, the bound is valid and the objective is attained."""
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
    """Return twice the rounding error of a float problem's sums; 0 for integers."""
    tables = [f.table for f in problem.factors if f.scope]
    if all(t.dtype.kind == "i" for t in tables):
        return Fraction(0)
    total = sum(Fraction(max(abs(x) for x in t.ravel().tolist() if x > -np.inf)) for t in tables)
    return 16 * len(problem.factors) * total / 2**53


@pytest.mark.parametrize("constant", [0, 10**15, -(10**15), 2**62, 0.1, 1e17])
@pytest.mark.parametrize("agents", [1, 2])
def test_a_constant_does_not_close_a_gap(constant, agents):
    """A relative gap would vanish next to a constant of 10^15, though it is a tenth of the range."""
    statuses = set()
    for seed in range(12):
        for floats in (False, True):
            tables = random_tables(seed, floats)
            original, shifted = clique(tables, agents), clique(tables, agents, constants=(constant,))
            without, result = solve_combined(original, MINI_BUCKETS), solve_combined(shifted, MINI_BUCKETS)
            check(shifted, result, slack_of(shifted))
            assert (result.status, result.assignment) == (without.status, without.assignment)
            statuses.add(result.status)
    assert statuses == {"optimal", "feasible"}


def test_integers_above_2_53_are_optimal_only_if_they_equal_their_bound():
    top = 2**53 + 1
    tables = [np.zeros((3, 3), dtype=np.int64) for _ in range(6)]
    tables[0][:] = top
    tables[1:4] = [np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0]])] * 3
    tables[4] = tables[5] = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    result = solve_combined(clique(tables), MINI_BUCKETS)
    assert result.objective is not None and result.bound is not None
    assert (result.status == "optimal") == (result.objective == result.bound)
    check(clique(tables), result)
    assert solve_combined(clique(tables), EXACT).status == "optimal"


@pytest.mark.parametrize("agents", [1, 2])
def test_small_costs_do_not_close_a_gap(agents):
    """For costs of 10^-12, a gap of a tenth of them is far below an absolute tolerance of 10^-9."""
    statuses = set()
    for seed in range(8):
        tables = [1e-12 * t for t in random_tables(seed, True, 1.0)]
        relaxed = solve_combined(clique(tables, agents, "min"), MINI_BUCKETS)
        check(clique(tables, agents, "min"), relaxed, slack_of(clique(tables)))
        statuses.add(relaxed.status)
        assert solve_combined(clique(tables, agents, "min"), EXACT).status == "optimal"
    assert "feasible" in statuses


@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("sense", ["max", "min"])
def test_exact_answers_on_mixed_magnitudes_are_optimal(agents, sense):
    for seed in range(8):
        tables = random_tables(seed, True, 1e-3)
        tables[seed % 6] = tables[seed % 6] * 1e19 + 1e16
        problem = clique(tables, agents, sense, constants=(1e16, -1e16, 1e-3))
        result = solve_combined(problem, EXACT)
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
def test_optimality_is_invariant_under_constants_and_powers_of_two(seed, floats, agents, sense, power, constants, z):
    combine = {"method": "mini-bucket", "z": z, "moment_matching": False}
    tables = random_tables(seed, floats, 8)
    first = solve_combined(clique(tables, agents, sense), combine)
    scaled = [t * 2.0**power if floats else t * 2 ** abs(power) for t in tables]
    problem = clique(scaled, agents, sense, tuple(constants))
    result = solve_combined(problem, combine)
    check(problem, result, slack_of(problem))
    assert (result.status, result.assignment) == (first.status, first.assignment)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    agents=st.sampled_from([1, 2]),
    scales=st.lists(st.sampled_from([1e-300, 1e-12, 1e-3, 1.0, 1e9, 1e16, 1e200]), min_size=6, max_size=6),
)
def test_optimal_results_agree_with_brute_force(seed, agents, scales):
    tables = [scale * table for scale, table in zip(scales, random_tables(seed, True, 1.0), strict=True)]
    problem = clique(tables, agents)
    for combine in (EXACT, MINI_BUCKETS):
        check(problem, solve_combined(problem, combine), slack_of(problem))


def test_the_gap_of_numbers_above_the_float_range_is_finite_or_none():
    assert gap_of(10**400, 2 * 10**400) == 1.0
    assert gap_of(10**400, 10**400 + 1) == 0.0  # not a proof: only the status says whether it is proven
    assert gap_of(0, 10**400) is None
    assert gap_of(0.5, 10**400) is None
