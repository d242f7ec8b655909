"""Utilities near the limits of floats and integers: a sound answer, or a one-line error."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import naive
from support.runs import solve_with

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.algorithms.layout import integer_tables
from dmcmc.formats import registry as formats
from dmcmc.formats.agent_files import write
from dmcmc.inference.marginals.counting import count_solutions, log_partition
from dmcmc.inference.runtime.errors import DmcmcError, ProblemError

METHODS = (
    *("auto", "exact", "blocks", "gibbs", "annealing", "tempering"),
    *("metropolis-hastings", "metropolis-hastings-single"),
)
BOUNDS = ("auto", "dual", "triangles", "mini-bucket", "none")
SCALES = (5e-324, 1e-310, 1e-300, 1e-30, 1.0, 1e30, 1e46, 1e300, 1.7e308)
INTEGERS = (1, 2**31, 2**53, 2**58, 2**62, 2**63 - 1)
SCOPES = ((0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (0, 3))  # two agents of three variables each, linked by one factor


def extreme(seed, sizes, hard, constants=()):
    """Return six variables of two agents; each table has its own magnitude, and floats if that is a float."""
    rng = np.random.default_rng(seed)
    factors = []
    for scope, size in zip(SCOPES, sizes, strict=True):
        if isinstance(size, float):
            table = np.where(rng.random((3, 3)) < hard, -np.inf, rng.uniform(-1, 1, (3, 3)) * size)
        else:
            table = rng.integers(-size, size, (3, 3), endpoint=True)
            table[rng.random((3, 3)) < hard] = np.iinfo(np.int64).min
        factors.append(Factor.of(scope, table))
    factors += [Factor.of((), constant) for constant in constants]
    return Problem(tuple("uvwxyz"), np.full(6, 3), ("a", "b"), np.arange(6) // 3, tuple(factors))


def check(problem, result):
    """Check that the bound is valid, the objective is that of the assignment, and an optimum is optimal."""
    best = naive.optimum(problem, exact=True)
    tables = [naive.utilities(f.table).ravel().tolist() for f in problem.factors]
    total = sum(max((abs(Fraction(x)) for x in t if x > -naive.INFINITY), default=0) for t in tables)
    integer = all(f.table.dtype.kind == "i" for f in problem.factors)
    rounding = 0 if integer else 8 * len(tables) * total / 2**53 + Fraction(5e-324)
    if result.status == "infeasible":
        assert best == -naive.INFINITY
        return
    assert result.bound is None or best == -naive.INFINITY or Fraction(result.bound) >= best
    if result.objective is None:
        assert result.violation
        return
    attained = naive.utility(problem, problem.values_of(result.assignment), exact=True)
    assert abs(Fraction(result.objective) - attained) <= rounding
    assert result.status != "optimal" or best - attained <= 2 * rounding
    if integer and result.status == "optimal":
        assert result.objective == result.bound == best


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.one_of(
        st.sampled_from(SCALES).map(lambda size: [size] * 6),
        st.lists(st.sampled_from(SCALES), min_size=6, max_size=6),
        st.sampled_from(INTEGERS).map(lambda size: [size] * 6),
        st.lists(st.sampled_from((*SCALES, *INTEGERS)), min_size=6, max_size=6),
    ),
    hard=st.sampled_from([0.0, 0.2]),
    constants=st.lists(st.sampled_from([2**62, -(2**62), 2**63 - 1, 1e300, 1.7e308, 5e-324, 0.1]), max_size=3),
    method=st.sampled_from(METHODS),
    bound=st.sampled_from(BOUNDS),
    combine=st.sampled_from(["auto", "exact", "mini-bucket"]),
    temperature=st.sampled_from(["auto", 1.0, 1e-30, 1e30, {"start": 1e30, "end": 1e-30, "schedule": "geometric"}]),
)
@example(0, [1.7e308] * 6, 0.0, [2**62], "auto", "auto", "auto", "auto")
def test_extreme_numbers_give_a_sound_answer_or_a_one_line_error(
    seed, sizes, hard, constants, method, bound, combine, temperature
):
    problem = extreme(seed, sizes, hard, constants)
    local = {"method": method, "bound": bound, "runs": 2, "samples": 5, "temperature": temperature}
    try:
        result = solve_with(problem, local=local, combine={"method": combine})
    except ProblemError as error:
        assert "scale them down" in str(error) and "\n" not in str(error)
        assert max([*map(float, sizes), *map(float, constants)]) > 1e300
        return
    check(problem, result)


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-30, 1e300, None])
def test_block_moves_take_utilities_of_any_size(scale):
    problem = extreme(7, [scale] * 6 if scale else [1e-320, 1e-300, 1.0, 1e300, 1e-310, 1e46], 0.0)
    result = solve_with(problem, local={"method": "blocks", "runs": 2, "samples": 5})
    check(problem, result)
    assert result.objective is not None


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e300])
def test_baseline_algorithms_take_utilities_of_any_size(scale):
    problem = extreme(7, [scale] * 6, 0.0)
    tables, _, unit = integer_tables(problem)
    assert 0 < unit < np.inf
    assert max(np.abs(table).max() for _, table in tables) < 2**61


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.sampled_from((*SCALES, *INTEGERS)), min_size=6, max_size=6),
    hard=st.sampled_from([0.0, 0.3]),
    mini_buckets=st.booleans(),
)
def test_sums_over_extreme_numbers_are_finite_or_a_one_line_error(seed, sizes, hard, mini_buckets):
    problem = extreme(seed, sizes, hard)
    best = naive.optimum(problem, exact=True)
    counted = count_solutions(problem, 1 << 30).count
    assert (counted == 0) == (best == -naive.INFINITY)
    try:
        ln = log_partition(problem, 1 << 30, mini_buckets=mini_buckets, z=2 if mini_buckets else None).ln
    except ProblemError as error:
        assert "scale them down" in str(error)
        return
    if counted:  # at least the best assignment's term, and at most that many of them
        slack = 1e-9 * max(1.0, *(abs(float(x)) for x in map(float, sizes)))
        assert float(best) - slack <= ln
        assert mini_buckets or ln <= float(best) + np.log(counted) + slack


@pytest.mark.parametrize("method", METHODS[2:])
@pytest.mark.parametrize(
    ("size", "temperature"), [(2**58, 1e-30), (1e46, 1.0), (1e-300, 1e30), (1e300, 1e-30), (1e300, 1.0)]
)
@pytest.mark.parametrize("hard", [0.0, 0.2])
def test_temperatures_outside_the_range_of_a_chain_are_clamped(method, size, temperature, hard):
    """In the units of a chain the temperatures would be denormal, 0 or infinite, and weights would not be numbers."""
    problem = extreme(0, [size] * 6, hard)
    found = solve_with(problem, local={"method": method, "runs": 3, "samples": 20, "temperature": temperature})
    check(problem, found)
    if temperature < 1 and method in ("gibbs", "tempering"):  # the lowest temperature is greedy, from three starts
        assert found.objective == naive.optimum(problem)


@pytest.mark.parametrize("seed", range(6))
def test_integers_of_more_than_60_bits_are_summed_exactly_in_one_file_and_in_private_ones(seed, tmp_path):
    """Each table is 2^58 and more, with small differences; their sum is up to 2^62 and a bit."""
    rng, build = np.random.default_rng(seed), Problem.build(sense=("max", "min")[seed % 2])
    names = [build.variable(f"{agent}{k}", 3, agent=agent) for agent in ("ann", "bob") for k in range(2)]
    for _ in range(7):
        chosen = [names[i] for i in rng.choice(4, 2, replace=False)]
        table = rng.choice([1, 2]) * 2**58 + rng.integers(0, 9, (3, 3))
        table[tuple(rng.integers(0, 3, 2))] = np.iinfo(np.int64).min  # forbidden
        build.factor(chosen, table)
    build.factor((), 5 - 2**61)
    problem = build.problem()
    found = [problem.evaluate(values) for values in itertools.product(range(3), repeat=4)]
    best = (max if problem.sense == "max" else min)(one.objective for one in found if not one.violation)
    write(problem, tmp_path / "parts", 1 << 30)
    session = dmcmc.PrivateSession(tmp_path / "parts")
    results = [dmcmc.solve(problem), dmcmc.solve(problem, timeout=5), session.solve(), session.solve()]
    again = dmcmc.Session(problem)
    results += [again.solve(), again.solve(), dmcmc.solve(problem, presolve="none", method="annealing")]
    assert [result.objective for result in results] == [best] * 7
    assert [(result.status, result.bound) for result in results[:6]] == [("optimal", best)] * 6
    assert problem.evaluate(dict(results[0].assignment)).objective == best


def of_two(add, sense="max"):
    """Return a problem of two variables with the factors that a function adds."""
    build = Problem.build(sense=sense)
    build.variable("x", 2, agent="a")
    build.variable("y", 2, agent="b")
    add(build)
    return build.problem()


def of_starts(first, second, add):
    """Return a problem of two start times with the constraint that a function adds, and a utility for each pair."""
    build = Problem.build()
    build.variable("x", first)
    build.variable("y", second)
    return add(build).factor(("x", "y"), [[5, 1], [0, 4]]).problem()


PYDCOP = (
    "name: t\nobjective: max\ndomains: {{d: {{values: [0, 1]}}}}\nvariables: {{x: {{domain: d}}, y: {{domain: d}}}}\n"
    "constraints: {{c: {{{}}}}}\nagents: [a, b]\n"
)
XCSP = (
    '<instance><presentation maximalCost="infinity" format="XCSP 2.1_FRODO"/><agents nbAgents="1"><agent name="a"/>'
    '</agents><domains nbDomains="1"><domain name="d" nbValues="2">0..1</domain></domains><variables nbVariables="2">'
    '<variable name="x" domain="d" agent="a"/><variable name="y" domain="d" agent="a"/></variables>'
    '<relations nbRelations="1"><relation name="r" arity="2" nbTuples="2" semantics="soft" defaultCost="{}">{}:0 1|{}:'
    '1 0</relation></relations><constraints nbConstraints="1"><constraint name="c" arity="2" scope="x y" reference="r"'
    "/></constraints></instance>"
)
CALENDAR = (
    "calendar: c\nfirst_day: 2027-03-01\ndays: 1\nhours: 09:00-10:00\nslot: 60\npeople: {{A: , B: }}\n"
    "meetings: {{M: {{people: [A], weight: {}}}, N: {{people: [A, B], weight: {}}}}}\n"
)
WITH_INTEGER = {  # by the place of an integer n: the problem, and its optimum
    "table": (lambda n: of_two(lambda b: b.factor(("x", "y"), [[0, n], [n - 1, 1]])), lambda n: n),
    "costs": (lambda n: of_two(lambda b: b.factor(("x", "y"), [[n + 1, n], [n + 3, n + 2]]), "min"), lambda n: n),
    "negative": (lambda n: of_two(lambda b: b.factor(("x", "y"), [[-n - 1, -n], [-n - 3, -n]])), lambda n: -n),
    "unary": (lambda n: of_two(lambda b: b.factor("x", [n, n - 1]).factor("x", [n + 1, 0])), lambda n: 2 * n + 1),
    "function": (lambda n: of_two(lambda b: b.factor(("x", "y"), lambda x, y: n + x - 2 * y)), lambda n: n + 1),
    "constraint's cost": (
        lambda n: of_two(lambda b: b.all_different(["x", "y"], cost=n).factor(("x", "y"), [[0, -2 * n], [-2 * n, 0]])),
        lambda n: -n,
    ),
    "duration": (lambda n: of_starts([0, n], [0, n], lambda b: b.no_overlap(["x", "y"], [n, n])), lambda n: 1),
    "demand": (
        lambda n: of_starts([0, 1], [0, 1], lambda b: b.cumulative(["x", "y"], [1, 1], [n, n], 2 * n - 1)),
        lambda n: 1,
    ),
    "distance": (lambda n: of_starts([0, 1], [n, n + 1], lambda b: b.precedence("x", "y", n + 1)), lambda n: 1),
    "wcsp": (
        lambda n: formats.parse(f"e 2 2 1 {8 * n}\n2 2\n2 0 1 {2 * n} 2\n0 1 {n}\n1 0 {n + 1}\n".encode(), "wcsp"),
        lambda n: n,
    ),
    "cfn": (
        lambda n: formats.parse(
            f"{{problem: {{name: m, mustbe: <{8 * n}}} variables: {{x: 2 y: 2}}"
            f" functions: {{f: {{scope: [x y] costs: [{n + 1} {n} {n + 3} {n + 2}]}}}}}}".encode(),
            "cfn",
        ),
        lambda n: n,
    ),
    "expression": (
        lambda n: formats.parse(PYDCOP.format(f"type: intention, function: {n} + x - 2*y").encode(), "pydcop"),
        lambda n: n + 1,
    ),
    "pydcop": (
        lambda n: formats.parse(
            PYDCOP.format(
                f"type: extensional, variables: [x, y], default: 3, values: {{{n}: 0 1, {n - 1}: 1 0}}"
            ).encode(),
            "pydcop",
        ),
        lambda n: n,
    ),
    "xcsp": (lambda n: formats.parse(XCSP.format(2 * n, n, n + 1).encode(), "xcsp"), lambda n: n),
    "calendar": (lambda n: formats.parse(CALENDAR.format(n, n - 1).encode(), "calendar"), lambda n: n),
}


@pytest.mark.parametrize("place", WITH_INTEGER)
@settings(max_examples=6, deadline=None)
@given(bits=st.integers(52, 70), offset=st.integers(-3, 3))
@example(bits=61, offset=1)
@example(bits=62, offset=1)
@example(bits=63, offset=-1)
@example(bits=63, offset=1)
def test_a_large_integer_is_exact_or_refused_in_every_place(place, bits, offset):
    make, optimum = WITH_INTEGER[place]
    n = 2**bits + offset
    try:
        problem = make(n)
        result = dmcmc.solve(problem)
    except DmcmcError as error:
        assert "\n" not in str(error)
        return
    assert type(result.objective) is int and result.objective == optimum(n)
    better = result.bound >= result.objective if problem.sense == "max" else result.bound <= result.objective
    assert better and (result.status == "optimal") == (result.bound == result.objective)
