"""Mini-buckets give a valid upper bound and are exact if no bucket is split."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from support import naive
from support.problem_strategies import random_problem

from dmcmc import Factor, Problem
from dmcmc.inference.elimination.plan import EliminationQuery, plan_elimination
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources, eliminate_within
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets, plan_within
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.errors import ResourceError

VARIANTS = [(partition, matching) for partition in ("scope", "content") for matching in (False, True)]


def relax(problem, z, partition="scope", matching=False, order=None, keep=(), **limits):
    """Eliminate with mini-buckets; return the elimination and an upper bound on the optimum (−∞ if infeasible)."""
    arithmetic = choose_arithmetic(problem.factors)
    tables = [arithmetic.encode(f) for f in problem.factors]
    order = list(range(problem.n_variables)) if order is None else order
    relaxation = Relaxation("mini-bucket", z, partition, matching)
    done = eliminate_within(
        EliminationQuery(tables, problem.domains, order, keep, arithmetic), relaxation, Resources(**limits)
    )
    if keep:
        return done, None
    total = done.elimination.total()
    if arithmetic.is_lowest(total):
        return done, -naive.INFINITY
    return done, arithmetic.outward(total, len(tables)) + done.margin


def assignment(done):
    values = {}
    done.elimination.maximise(values)
    return [values[v] for v in sorted(values)]


def journal_example():
    """Fig. 1 of the journal paper: four binary variables, every constraint with the same costs."""
    constraints = ("12", "14", "23", "24", "34")
    costs = [[2, 0], [1, 3]]  # rows x_i = 0, 1; columns x_j = 0, 1
    return Problem(
        variables=tuple(f"x{v}" for v in range(1, 5)),
        domains=np.full(4, 2),
        agents=("a",),
        owner=np.zeros(4, dtype=np.int64),
        factors=tuple(Factor.of([int(v) - 1 for v in name], costs, "min", name) for name in constraints),
        sense="min",
    )


def test_example_3_of_the_journal():
    problem = journal_example()
    done, bound = relax(problem, 3, order=[3, 2, 1, 0])
    assert done.z is None  # no bucket is split
    assert problem.to_own_sense(bound) == 4
    for values in (assignment(done), [0, 1, 0, 1]):  # both are optimal
        assert problem.evaluate(np.array(values)).objective == 4


def test_example_3_with_the_table_that_the_journal_prints():
    """Fig. 2a prints 3 where the constraints give 0; then ⟨0,1,0,1⟩ is the only optimum."""
    printed = np.zeros((2, 2, 2, 2), dtype=np.int64)
    printed[0, 0, 0, 1] = 3
    problem = journal_example()
    problem = replace(problem, factors=(*problem.factors, Factor.of(range(4), printed, "min")))
    done, bound = relax(problem, 3, order=[3, 2, 1, 0])
    messages = [-done.elimination.table(done.elimination.plan.output(b)).values for b in range(4)]
    assert messages[0].transpose(2, 1, 0).ravel().tolist() == [3, 3, 3, 4, 3, 4, 4, 3]  # f4 over x3, x2, x1
    assert messages[1].T.ravel().tolist() == [3, 4, 4, 5]
    assert messages[2].tolist() == [4, 5]
    assert problem.to_own_sense(bound) == messages[3] == 4
    assert assignment(done) == [0, 1, 0, 1]


def test_example_4_of_the_journal():
    problem = journal_example()
    done, bound = relax(problem, 1, order=[3, 2, 1, 0])
    plan = done.elimination.plan
    assert plan.program.variable.tolist() == [3, 3, 3, 2, 1, 0]
    assert plan.width == 1
    messages = [-done.elimination.table(plan.output(b)).values for b in range(plan.buckets)]
    assert [m.tolist() for m in messages] == [[0, 1], [0, 1], [0, 1], [1, 1], [2, 2], 2]
    assert problem.to_own_sense(bound) == 2
    assert assignment(done) == [0, 1, 0, 1]


def cases(count=120):
    """Random problems: integers and floats, both senses, some with many hard constraints."""
    for seed in range(count):
        hard, floats = (0.0, 0.1, 0.5)[seed % 3], seed % 4 == 3
        yield random_problem(seed, 7, 2, 3, 12, 3, 50, hard, floats, "min" if seed % 5 == 0 else "max")


@pytest.mark.parametrize(("partition", "matching"), VARIANTS)
def test_the_bound_is_valid_and_the_assignment_is_feasible(partition, matching):
    split = tight = 0
    for problem in cases():
        best = naive.optimum(problem)
        scopes = [f.scope for f in problem.factors]
        least = least_z(scopes, range(problem.n_variables))
        for z in (least, least + 1):
            done, bound = relax(problem, z, partition, matching)
            values = assignment(done)
            assert all(0 <= x < d for x, d in zip(values, problem.domains, strict=True))
            assert bound >= best >= naive.utility(problem, values)
            split += done.z is not None
            tight += bound == best
    assert split > 30 and tight > 30


@pytest.mark.parametrize(("partition", "matching"), VARIANTS)
def test_with_kept_variables_every_entry_bounds_the_exact_one(partition, matching):
    for problem in cases(60):
        n = problem.n_variables
        keep, order = list(range(n // 3)), list(range(n // 3, n))
        z = least_z([f.scope for f in problem.factors], order)
        done, _ = relax(problem, z, partition, matching, order, keep)
        arithmetic = done.elimination.arithmetic
        tables = naive.plain_tables(done.elimination.remaining(), arithmetic)
        found = naive.join(tables, keep, problem.domains)
        plain = [(f.scope, naive.utilities(f.table)) for f in problem.factors]
        exact = naive.marginal(plain, order, keep, problem.domains)
        slack = 0 if arithmetic.exact else arithmetic.outward(0.0, len(tables)) + done.margin
        assert all(a + slack >= b for a, b in zip(found.ravel(), exact.ravel(), strict=True))


@pytest.mark.parametrize(("partition", "matching"), VARIANTS)
def test_z_of_the_induced_width_is_exact(partition, matching):
    for problem in cases(40):
        order = list(range(problem.n_variables))
        width = plan_elimination([f.scope for f in problem.factors], problem.domains, order).width
        least = least_z([f.scope for f in problem.factors], order)
        done, bound = relax(problem, max(width, least), partition, matching)
        assert done.z is None
        best = naive.optimum(problem)
        assert bound == best or abs(bound - best) <= 1e-9 * float(done.elimination.arithmetic.total)
        if best > -naive.INFINITY:
            assert naive.utility(problem, assignment(done)) == pytest.approx(best)


@pytest.mark.parametrize("partition", ["scope", "content"])
@pytest.mark.parametrize("matching", [False, True])
def test_no_message_has_more_than_z_variables_and_every_table_is_used_once(partition, matching):
    for problem in cases(60):
        order = list(range(problem.n_variables))
        z = least_z([f.scope for f in problem.factors], order)
        plan = relax(problem, z, partition, matching)[0].elimination.plan
        assert plan.width <= z
        taken = [t for b in range(plan.buckets) for t in plan.inputs(b)] + list(plan.remaining)
        assert sorted(taken) == list(range(plan.tables))
        assert [v for i, v in enumerate(plan.program.variable) if i == 0 or plan.program.variable[i - 1] != v] == order
        for b in range(plan.buckets):
            v = plan.program.variable[b]
            joined = {u for t in plan.inputs(b) for u in plan.scope(t)} - {v}
            assert all(plan.scope(t)[0] == v for t in plan.inputs(b))
            assert set(plan.scope(plan.output(b))) == joined
            assert plan.program.cells[b] == prod(int(problem.domains[u]) for u in joined | {v})
        assert plan.sizes.tolist() == [prod(plan.shape(t)) for t in range(plan.tables)]
        assert plan.program.at.tolist() == [int(plan.sizes[:t].sum()) for t in range(plan.tables)]


def first_fit(scopes, order, z):
    """Return mini-buckets as sets of scopes, one list per variable: by decreasing size, into the first that it fits."""
    tables = [frozenset(s) for s in scopes]
    steps = []
    for v in order:
        bucket = sorted((s for s in tables if v in s), key=lambda s: -len(s))
        tables = [s for s in tables if v not in s]
        unions = []
        for scope in bucket:
            fitting = next((i for i, u in enumerate(unions) if len(u | scope - {v}) <= z), None)
            if fitting is None:
                unions.append(scope - {v})
            else:
                unions[fitting] |= scope - {v}
        steps.append(unions or [frozenset()])
        tables += steps[-1]
    return steps


@pytest.mark.parametrize("seed", range(40))
def test_scope_based_partitions_are_first_fit(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 25))
    scopes = [rng.permutation(n)[: rng.integers(1, min(n, 4) + 1)].tolist() for _ in range(rng.integers(0, 60))]
    order = rng.permutation(n).tolist()
    for z in range(least_z(scopes, order), min(n, 6)):
        plan = plan_mini_buckets(scopes, np.full(n, 2), order, z=z)
        expected = first_fit(scopes, order, z)
        assert plan.program.variable.tolist() == [v for v, parts in zip(order, expected, strict=True) for _ in parts]
        assert [frozenset(plan.scope(plan.output(b))) for b in range(plan.buckets)] == [u for p in expected for u in p]


def test_the_error_for_a_small_z_names_the_smallest_z():
    with pytest.raises(ResourceError, match=r"z = 1 is too small: .* 4 variables.*; the least z is 3"):
        plan_mini_buckets([(0, 1, 2, 3), (0, 1)], np.full(4, 2), range(4), z=1)
    plan_mini_buckets([(0, 1, 2, 3), (0, 1)], np.full(4, 2), range(4), z=3)
    assert least_z([(0, 1, 2)], [3]) == 0  # tables without eliminated variables do not count


@pytest.mark.parametrize("seed", range(20))
def test_the_memory_gives_the_largest_z_that_fits(seed):
    rng = np.random.default_rng(seed)
    n = 14
    domains = rng.integers(1, 4, n)
    scopes = [rng.permutation(n)[:2].tolist() for _ in range(40)]
    order = list(range(n))
    for entries in (100, 1000, 10_000):
        z, plan = plan_within(scopes, domains, order, [], entries)
        fitting = [k for k in range(1, n + 1) if plan_mini_buckets(scopes, domains, order, z=k).entries <= entries]
        if not fitting:
            assert z == 1
            continue
        again = plan_mini_buckets(scopes, domains, order, z=max(fitting))
        assert plan.entries == again.entries <= entries
        assert plan.width == again.width == z


def test_content_based_partitions_join_what_belongs_together():
    """Two tables that favour opposite values of x loosen the bound most if they are separated."""
    agree, against = [[9, 9], [0, 0]], [[0, 0], [9, 9]]
    problem = Problem(
        variables=("x", "a", "b", "c"),
        domains=np.full(4, 2),
        agents=("all",),
        owner=np.zeros(4, dtype=np.int64),
        factors=tuple(Factor.of((0, v), t) for v, t in ((1, agree), (2, agree), (3, against))),
    )
    _, by_scope = relax(problem, 2)
    done, by_content = relax(problem, 2, "content")
    assert naive.optimum(problem) == by_content == 18 < by_scope
    plan = done.elimination.plan
    assert any({3} < set(plan.scope(plan.output(b))) for b in (0, 1))
