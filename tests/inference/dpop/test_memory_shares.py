"""A budget of bytes is divided among what is alive at the same time, and refused where it is used up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc import Factor, Problem
from dmcmc.inference.dpop.memory_shares import bytes_of_tables, largest_share, shares_of
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.model.arithmetic import Table, choose_arithmetic
from dmcmc.inference.runtime import memory
from dmcmc.inference.runtime.errors import OutOfMemory, ResourceError
from dmcmc.inference.runtime.memory import Account

MB = 10**6
NEEDS = st.lists(st.floats(0, 1e6), min_size=1, max_size=8)


def problem(entries=1000):
    """A factor, and another one that has the same table."""
    table = Factor.of((0,), np.arange(entries))
    return Problem(("x", "y"), [entries, entries], ("a",), [0, 0], (table, Factor((1,), table.table)))


def test_the_shares_are_no_more_than_the_budget():
    shares = shares_of(100_000, problem())
    assert shares.problem == bytes_of_tables(problem()) == 4000
    assert shares.problem + shares.work + shares.kept == 100_000
    assert shares.kept < shares.steps < shares.work


def test_a_problem_that_takes_all_of_it_is_refused_with_figures():
    with pytest.raises(ResourceError, match=r"tables take 3\.9 KiB and budget\.memory allows 2\.9 KiB; raise it"):
        shares_of(3000, problem())


@given(NEEDS, st.floats(1, 1e7))
def test_what_each_takes_is_no_more_than_there_is(needs, room):
    most = largest_share(needs, room)
    assert sum(min(need, most) for need in needs) <= room * (1 + 1e-9)
    if sum(needs) <= room:
        assert most >= max(needs) * (1 - 1e-9)
    else:
        assert sum(min(need, most) for need in needs) == pytest.approx(room)


@pytest.fixture
def resident(monkeypatch):
    def holds(size):
        monkeypatch.setattr(memory, "resident_memory", lambda: size)

    return holds


def test_what_does_not_fit_beside_what_is_held_is_refused(resident):
    account = Account()
    account.claim(1 << 40, "anything")  # nobody has opened it
    with account.open(100 * MB):
        resident(memory.OWN + 30 * MB)
        assert account.left() == 70 * MB
        account.claim(70 * MB, "tables")
        with pytest.raises(OutOfMemory, match=r"^tables: 68\.7 MiB more do not fit budget\.memory"):
            account.claim(72 * MB, "tables")
    assert account.left() is None


def test_what_a_process_held_before_is_its_own(resident):
    account = Account()
    resident(900 * MB)
    with account.open(100 * MB, own=880 * MB):
        assert account.left() == 80 * MB
    with account.open(100 * MB), pytest.raises(OutOfMemory):
        account.claim(5 * MB, "tables")


def test_what_compiling_takes_is_not_the_runs(resident):
    account = Account()
    with account.open(100 * MB):
        resident(memory.OWN)
        with account.open(1):  # a run that warms up
            for begins in (True, True, False):
                account.compiling(begins)
        resident(memory.OWN + 300 * MB)
        account.compiling(False)
        assert account.left() == 100 * MB
    assert account.left() is None


def test_a_run_within_a_run_has_no_budget_of_its_own():
    account = Account()
    with account.open(100 * MB):
        with account.open(5 * MB):
            assert account.budget == 100 * MB
        assert account.part(0.5, 80 * MB) == 50 * MB and account.part(0.5, 8) == 8
    assert account.part(0.5, 80 * MB) == 80 * MB


def test_an_elimination_asks_first(resident, monkeypatch):
    tables = [Table((0, 1), np.zeros((1500, 1500), dtype=np.int32))]
    arithmetic = choose_arithmetic([Factor.of((0, 1), np.zeros((2, 2), dtype=np.int64))])
    plan = plan_elimination([(0, 1)], np.array([1500, 1500]), [0, 1])
    resident(memory.OWN)
    with memory.ACCOUNT.open(5 * MB), pytest.raises(OutOfMemory, match="tables of 2 buckets"):
        eliminate(tables, plan, arithmetic)
    with memory.ACCOUNT.open(50 * MB):
        assert eliminate(tables, plan, arithmetic).total() == 0
