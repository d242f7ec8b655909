"""Replacing variables that are functions of others changes no maximum."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support import naive

from dmcmc.inference.model.arithmetic import EncodedTable, narrowest
from dmcmc.inference.sparse.sparse_table import SparseBackedTable, SparseTable, as_dense, substitute_functional

ARITHMETIC = narrowest(10_000, True)
DOMAINS = np.array([3, 3, 2, 3])


def tables_with_functions(seed):
    """Return random tables over four variables; some of them make a variable a function of another one."""
    rng, tables = np.random.default_rng(seed), []
    for _ in range(rng.integers(1, 5)):
        scope = tuple(rng.permutation(4)[: rng.integers(1, 4)].tolist())
        values = rng.integers(-9, 9, DOMAINS[list(scope)]).astype(np.int32)
        values[rng.random(values.shape) < 0.2] = ARITHMETIC.lowest
        tables.append(EncodedTable(scope, values))
    for _ in range(rng.integers(0, 4)):
        u, v = rng.permutation(4)[:2].tolist()
        values = np.full((DOMAINS[u], DOMAINS[v]), ARITHMETIC.lowest, dtype=np.int32)
        image = rng.integers(0, DOMAINS[v], DOMAINS[u])
        values[np.arange(DOMAINS[u]), image] = rng.integers(-9, 9, DOMAINS[u])
        values[rng.random(DOMAINS[u]) < 0.2] = ARITHMETIC.lowest
        tables.append(EncodedTable((u, v), values))
    if rng.random() < 0.3:
        rows = SparseTable.of(tables[-1], DOMAINS, ARITHMETIC)
        tables[-1] = SparseBackedTable(rows, tables[-1].values.shape, ARITHMETIC.lowest)
    return tables


def joined(tables, variables):
    dense = [as_dense(table) for table in tables]
    return naive.join(naive.plain_tables(dense, ARITHMETIC), variables, DOMAINS)


@given(st.integers(0, 10**9))
def test_the_maximum_over_replaced_variables_does_not_change(seed):
    tables, variables = tables_with_functions(seed), [0, 2, 3]
    shorter, substitutions = substitute_functional(tables, variables)
    replaced = [substitution.variable for substitution in substitutions]
    assert len(set(replaced)) == len(replaced) and set(replaced) <= set(variables)
    assert not any(set(table.scope) & set(replaced) for table in shorter)
    kept = [v for v in range(4) if v not in replaced]
    before = naive.maximum(joined(tables, range(4)), replaced)
    np.testing.assert_array_equal(before, joined(shorter, kept))


@given(st.integers(0, 10**9))
def test_the_values_of_replaced_variables_attain_the_maximum(seed):
    tables = tables_with_functions(seed)
    shorter, substitutions = substitute_functional(tables, range(4))
    kept = [v for v in range(4) if v not in {substitution.variable for substitution in substitutions}]
    whole = joined(tables, range(4))
    best = joined(shorter, kept)
    values = dict(zip(kept, np.unravel_index(best.argmax(), best.shape), strict=True))
    for variable, source, value in reversed(substitutions):
        values[variable] = value[values[source]]
    assert whole[tuple(values[v] for v in range(4))] == whole.max()
