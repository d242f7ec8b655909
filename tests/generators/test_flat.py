"""Tables that a generator makes in one block are not laid out once more, and are those of the factors."""

import numpy as np
import pytest

import dmcmc
from dmcmc.inference.model.flat_tables import flatten


@pytest.mark.parametrize(
    ("family", "more"),
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
def test_flat_tables_are_those_of_the_factors(family, more):
    problem = dmcmc.generate(family, **more)
    again = flatten([f.scope for f in problem.factors], [f.table for f in problem.factors])
    for ours, theirs in zip(problem.flat, again, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
    assert problem.flat.data.flags.writeable
    assert all(not factor.table.flags.writeable for factor in problem.factors)
