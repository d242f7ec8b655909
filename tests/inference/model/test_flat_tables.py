"""Flat tables: their ranges, and those of an agent's part of them, equal the ranges of each table."""

import numpy as np
import pytest
from support.problem_strategies import random_problem

from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model import flat_tables
from dmcmc.inference.model.flat_tables import flatten, table_ranges
from dmcmc.inference.model.tables import forbidden, forbidden_value
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_ranges_are_those_of_the_finite_entries(dtype, share):
    rng, dtype = np.random.default_rng(3), np.dtype(dtype)
    largest = np.iinfo(dtype).max if dtype.kind == "i" else 2**53
    tables = [rng.integers(-largest, largest, size, endpoint=True).astype(dtype) for size in (1, 2, 7, 50)]
    for table in tables:
        table[rng.random(table.size) < share] = forbidden_value(dtype)
    found = table_ranges(flatten([(0,)] * len(tables), tables, dtype))
    allowed = [[x for x in table.tolist() if x != forbidden_value(dtype)] for table in tables]
    assert found.low.tolist() == [min(entries, default=0) for entries in allowed]
    assert found.high.tolist() == [max(entries, default=0) for entries in allowed]
    assert found.forbidden.tolist() == [int(forbidden(table).sum()) for table in tables]
    assert found.magnitudes == [max(map(abs, entries), default=0) for entries in allowed]


@pytest.mark.parametrize("step", [1, 3, 8])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_pieces_of_tables_between_checks_of_the_deadline_have_the_same_ranges(step, share, monkeypatch):
    rng = np.random.default_rng(4)
    tables = [rng.integers(-99, 99, size).astype(np.int32) for size in (1, 2, 7, 50, 3)]
    for table in tables:
        table[rng.random(table.size) < share] = forbidden_value(table.dtype)
    flat = flatten([(0,)] * len(tables), tables)
    expected = table_ranges(flat)
    monkeypatch.setattr(flat_tables, "CELLS_PER_CHECK", step)
    for found, other in zip(table_ranges(flat), expected, strict=True):
        np.testing.assert_array_equal(found, other)
    with pytest.raises(OutOfTime):
        table_ranges(flat, Deadline(0.0))


def test_no_tables_have_no_ranges():
    assert [part.size for part in table_ranges(flatten([], []))] == [0, 0, 0]


@pytest.mark.parametrize("seed", range(5))
def test_the_ranges_of_an_agent_are_those_of_its_tables(seed):
    problem = random_problem(seed, 12, 4, 3, 20)
    assert problem.flat.tables == len(problem.factors)  # the agents' tables are parts of this array
    for local in divide(problem).locals:
        for found, expected in zip(local.ranges, table_ranges(local.flat), strict=True):
            np.testing.assert_array_equal(found, expected)
