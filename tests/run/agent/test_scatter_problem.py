"""Test that the parts of a scattered problem arrive unchanged."""

import numpy as np

import dmcmc
from dmcmc.solving.distribution.scatter_problem import _packed, _unpacked


def test_a_part_is_sent_as_bytes_without_pickled_tables():
    part = dmcmc.generate("meeting-scheduling", agents=2, variables_per_agent=4, domain_size=40)
    data, sizes = _packed(part)
    found, tables = _unpacked(data, sizes), [factor.table for factor in part.factors]
    assert (found.variables, found.agents, found.sense) == (part.variables, part.agents, part.sense)
    assert found.owner.tolist() == part.owner.tolist() and found.domains.tolist() == part.domains.tolist()
    for mine, theirs in zip(part.factors, found.factors, strict=True):
        assert (mine.scope, mine.table.dtype) == (theirs.scope, theirs.table.dtype) and theirs.table.flags.aligned
        np.testing.assert_array_equal(mine.table, theirs.table)
    assert sizes[0] < 8000 < sum(table.nbytes for table in tables) <= sizes[1:].sum()
