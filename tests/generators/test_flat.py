"""Tables that a generator draws in one block are used without a copy and equal those of the factors."""

import numpy as np
import pytest

import dmcmc
from dmcmc.inference.model.flat_tables import flatten


@pytest.mark.parametrize(
    ("family", "parameters"),
    [
        ("meeting-scheduling", {"agents": 3}),
        ("meeting-scheduling", {"agents": 2, "tables": "uniform"}),
        ("meeting-scheduling", {"agents": 2, "tables": "hard"}),
        ("random", {"agents": 3}),
        ("random-network", {"nodes": 6, "tightness": 0.3}),
        ("colouring", {"nodes": 6}),
        ("scale-free", {"nodes": 1}),
        ("grid", {"rows": 3}),
    ],
)
def test_flat_tables_are_those_of_the_factors(family, parameters):
    problem = dmcmc.generate(family, **parameters)
    again = flatten([f.scope for f in problem.factors], [f.table for f in problem.factors])
    for shared, copied in zip(problem.flat, again, strict=True):
        np.testing.assert_array_equal(shared, copied)
        assert shared.dtype == copied.dtype
    assert problem.flat.data.flags.writeable
    assert all(not factor.table.flags.writeable for factor in problem.factors)
