"""Random encoded tables and elimination plans."""

import numpy as np
from hypothesis import strategies as st

from dmcmc import Factor
from dmcmc.inference.elimination.plan import EliminationQuery, plan_elimination
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.sparse.join_steps import Bucket, BucketInput
from dmcmc.inference.sparse.sparse_table import SparseTable

HARD = -np.inf


@st.composite
def problems(draw, whole=True, scale=50):
    """Draw encoded tables over up to 6 variables, a plan that eliminates some of them, and their arithmetic."""
    (plan,), flat, arithmetic = draw(batches(whole, scale, most=1, n=6))
    return flat, plan, arithmetic


@st.composite
def batches(draw, whole=True, scale=50, most=3, n=4):
    """Draw plans over disjoint variables, all their encoded tables, and their arithmetic."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    plans = draw(st.integers(min(2, most), most))
    domains = rng.integers(1, n // 2 + 2, n * plans)
    members, scopes, orders = [], [], []
    for p in range(plans):
        members_of_plan = []
        for _ in range(n + 1):
            scope = (p * n + rng.permutation(n)[: rng.integers(0, n - 1)]).tolist()
            table = rng.integers(-scale, scale, tuple(domains[scope])).astype(float)
            table = table if whole else table / 7
            members_of_plan.append(Factor.of(scope, np.where(rng.random(table.shape) < 0.2, -np.inf, table)))
        members += members_of_plan
        scopes.append([f.scope for f in members_of_plan])
        order = (p * n + rng.permutation(n)).tolist()
        separator = sorted(order[n - int(rng.integers(0, n // 2)) :])
        orders.append(([v for v in order if v not in separator], separator))
    arithmetic = choose_arithmetic(members) if whole else Arithmetic(np.dtype(np.float64), -np.inf, 1e4)
    encoded = [arithmetic.encode(f) for f in members]
    flat = flatten([t.scope for t in encoded], [t.values for t in encoded], arithmetic.dtype)
    plans_made = [
        plan_elimination(plan_scopes, domains, *order) for plan_scopes, order in zip(scopes, orders, strict=True)
    ]
    return plans_made, flat, arithmetic


def same_tables(left, right, tolerance=0.0):
    """Return whether two eliminations left the same tables."""
    a = {t.scope: t.values for t in left.remaining()}
    b = {t.scope: t.values for t in right.remaining()}
    return a.keys() == b.keys() and all(np.allclose(a[s], b[s], rtol=tolerance, atol=tolerance) for s in a)


def chosen_values(done):
    values = np.zeros(done.plan.program.domains.size, dtype=np.int64)
    done.choose(values)
    return values.tolist()


@st.composite
def queries(draw, kinds=("whole", "real")):
    """Draw queries of up to 6 variables with up to 4 values and tables of any density; all variables are eliminated."""
    n = draw(st.integers(1, 6))
    domains = np.array(draw(st.lists(st.integers(1, 4), min_size=n, max_size=n)), dtype=np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    density, kind = draw(st.sampled_from([0.1, 0.5, 0.8, 1.0])), draw(st.sampled_from(kinds))
    factors = []
    for _ in range(draw(st.integers(1, 8))):
        scope = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=3, unique=True))
        shape = [int(domains[v]) for v in scope]
        values = rng.integers(-9, 9, shape) + (0.25 if kind == "real" else 0)
        factors.append(Factor.of(scope, np.where(rng.random(shape) < density, values, HARD)))
    arithmetic = choose_arithmetic(factors)
    order = draw(st.permutations(range(n)))
    return EliminationQuery([arithmetic.encode(f) for f in factors], domains, order, (), arithmetic)


def naive(query, scope, tables):
    """Return the sum of tables over a scope as floats, with −inf for forbidden entries."""
    total = np.zeros([int(query.domains[v]) for v in scope])
    for table_scope, values in tables:
        finite = np.where(values > query.arithmetic.forbidden_below, values.astype(float), HARD)
        order = sorted(range(len(table_scope)), key=lambda axis: scope.index(table_scope[axis]))
        shape = [int(query.domains[v]) if v in table_scope else 1 for v in scope]
        total = total + finite.transpose(order).reshape(shape)
    return total


def first_bucket(query, listed):
    """Return the first variable's bucket and its tables; tables whose bit of ``listed`` is set are sparse."""
    variable = query.order[0]
    tables = [t for t in query.tables if variable in t.scope]
    scope = tuple(sorted({v for t in tables for v in t.scope} - {variable}))
    inputs = [
        BucketInput(SparseTable.of(t, query.domains, query.arithmetic), (t,)) if listed >> i & 1 else BucketInput(t)
        for i, t in enumerate(tables)
    ]
    return Bucket(variable, scope, inputs, (), query.domains, query.arithmetic), tables
