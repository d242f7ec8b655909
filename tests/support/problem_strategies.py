"""Random problems of every shape that the model allows, for property tests."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from dmcmc import Factor, Problem
from dmcmc.inference.model.automaton import automaton_of
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden_value

INFINITY = float("inf")
names = st.text(min_size=1, max_size=5)
labels = st.one_of(
    st.text(max_size=3), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, width=64), st.just(2**63)
)


@st.composite
def tables(draw, shape, sense="max"):
    """Draw a table of int32, int64 or float64 range, with forbidden entries."""
    hard = -INFINITY if sense == "max" else INFINITY
    size = int(np.prod(shape, dtype=int))
    entry = draw(
        st.sampled_from(
            [
                st.one_of(st.integers(-1000, 1000), st.just(hard)),
                st.one_of(st.integers(-(2**50), 2**50), st.just(hard)),
                st.one_of(st.floats(-1e9, 1e9), st.just(hard)),
            ]
        )
    )
    values = draw(st.lists(entry, min_size=size, max_size=size))
    return np.array(values, dtype=np.float64).reshape(shape)


@st.composite
def problems(draw):
    """Draw up to 5 variables of up to 3 values, up to 3 agents (perhaps idle), and factors of arity 0 to 3."""
    n = draw(st.integers(0, 5))
    domains = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    agents = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    sense = draw(st.sampled_from(["max", "min"]))
    factors = []
    for _ in range(draw(st.integers(0, 4))):
        scope = draw(st.lists(st.integers(0, n - 1), max_size=min(n, 3), unique=True)) if n else []
        table = draw(tables(tuple(domains[v] for v in scope), sense))
        factors.append(Factor.of(scope, table, sense, draw(st.one_of(st.just(""), names))))
    return Problem(
        variables=tuple(draw(st.lists(names, min_size=n, max_size=n, unique=True))),
        domains=np.array(domains, dtype=np.int64),
        agents=tuple(agents),
        owner=np.array(draw(st.lists(st.integers(0, len(agents) - 1), min_size=n, max_size=n)), dtype=np.int64),
        factors=tuple(factors),
        labels=tuple(
            draw(st.one_of(st.none(), st.lists(labels, min_size=d, max_size=d, unique=True).map(tuple)))
            for d in domains
        ),
        sense=sense,
        name=draw(st.text(max_size=5)),
    )


def equal_problems(left, right):
    """Return whether two problems are equal, including the types of labels and the dtypes of tables."""

    def typed(problem):
        return [None if ls is None else [(type(x), x) for x in ls] for ls in problem.labels]

    compared_fields = ("variables", "agents", "sense", "name")
    return (
        all(getattr(left, field) == getattr(right, field) for field in compared_fields)
        and typed(left) == typed(right)
        and np.array_equal(left.domains, right.domains)
        and np.array_equal(left.owner, right.owner)
        and len(left.factors) == len(right.factors)
        and all(
            (a.scope, a.name, a.table.dtype, a.table.shape) == (b.scope, b.name, b.table.dtype, b.table.shape)
            and np.array_equal(a.table, b.table)
            for a, b in zip(left.factors, right.factors, strict=True)
        )
    )


def random_table(rng, shape, magnitude=9, hard=0.0, floats=False):
    """Return a utility table with entries in ±magnitude, a share of which is forbidden."""
    values = rng.uniform(-magnitude, magnitude, shape) if floats else rng.integers(-magnitude, magnitude + 1, shape)
    values = np.asarray(values)
    if not floats and magnitude > 2**52:  # float64 would round
        values = values.astype(np.int64)
        values[rng.random(shape) < hard] = np.iinfo(np.int64).min
        return values
    return np.where(rng.random(shape) < hard, -INFINITY, values)


def random_problem(
    seed, variables=7, agents=4, domain=4, factors=9, arity=3, magnitude=9, hard=0.1, floats=False, sense="max"
):
    """Return a problem drawn from a seed: arity from 0, domains from 1, perhaps disconnected, perhaps with idle agents.

    All sizes are upper limits; ``hard`` is the share of forbidden entries.
    """
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(0, variables + 1)), int(rng.integers(1, agents + 1))
    domains = rng.integers(1, domain + 1, n)
    factor_list = []
    for _ in range(int(rng.integers(0, factors + 1))):
        scope = rng.permutation(n)[: rng.integers(0, min(n, arity) + 1)].tolist()
        share = hard if scope else hard / 4  # a forbidden constant makes the problem infeasible
        table = random_table(rng, tuple(domains[scope]), magnitude, share, floats)
        factor_list.append(Factor.of(scope, -table if sense == "min" and magnitude <= 2**52 else table, sense))
    return Problem(
        variables=tuple(f"x{v}" for v in range(n)),
        domains=domains,
        agents=tuple(f"a{a}" for a in range(k)),
        owner=rng.integers(0, k, n),
        factors=tuple(factor_list),
        sense=sense,
    )


PROBLEM_SETTINGS = {
    "whole": {},
    "hard": {"hard": 0.6},
    "costs": {"sense": "min"},
    "floats": {"floats": True},
    "huge": {"magnitude": 2**61, "hard": 0.1},
    "free": {"hard": 0.0, "domain": 9, "variables": 9, "factors": 20},
}


def with_other_representations(problem, rng):
    """Return the same problem with some factors as sparse tables and some as automata."""
    factors = []
    for factor in problem.factors:
        representation = rng.integers(0, 3) if factor.scope else 0
        if representation:
            tuples = np.array(list(np.ndindex(factor.shape)), dtype=np.int32).reshape(-1, len(factor.scope))
            selected = rng.random(len(tuples)) < 0.5
            utilities = np.append(factor.table.reshape(-1)[selected], factor.table.reshape(-1)[~selected][:1])
            if not selected.all():
                factor = SparseFactor(factor.scope, factor.shape, tuples[selected], utilities, factor.name)
                factor = automaton_of(factor) if representation == 2 else factor
        factors.append(factor)
    return replace(problem, factors=tuple(factors))


@st.composite
def mixed_problems(draw):
    """Draw six variables with factors of any arity: integers or floats, both senses, some entries forbidden."""
    return random_problem(
        draw(st.integers(0, 10**6)),
        variables=6,
        hard=draw(st.sampled_from([0.0, 0.1, 0.4])),
        floats=draw(st.booleans()),
        magnitude=draw(st.sampled_from([3, 1000, 2**40])),
        sense=draw(st.sampled_from(["max", "min"])),
    )


def deterministic_grid(side, rng, forbidden=0.6):
    """Return a grid of three-valued variables with mostly forbidden entries, except those of a planted assignment."""
    n = side * side
    planted = rng.integers(0, 3, n)
    factors = []
    for v in range(n):
        for u in [v + 1] * (v % side < side - 1) + [v + side] * (v + side < n):
            table = rng.integers(0, 100, (3, 3)).astype(np.int32)
            table[rng.random((3, 3)) < forbidden] = forbidden_value(table.dtype)
            table[planted[v], planted[u]] = max(0, table[planted[v], planted[u]])
            factors.append(Factor((v, u), table))
    names = tuple(f"x{v}" for v in range(n))
    return Problem(names, np.full(n, 3), ("a",), np.zeros(n, dtype=np.int64), tuple(factors))
