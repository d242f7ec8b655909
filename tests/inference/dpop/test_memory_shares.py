"""Test that a memory budget is divided among simultaneous data, and that exceeding it is an error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc import Factor, Problem
from dmcmc.inference.dpop.slicing import largest_share, split_memory
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.model.problem import bytes_of_tables
from dmcmc.inference.runtime import memory
from dmcmc.inference.runtime.errors import OutOfMemory, ResourceError
from dmcmc.inference.runtime.memory import MemoryAccount
from dmcmc.inference.tuning import INTERPRETER_BYTES

MB = 10**6
NEEDS = st.lists(st.floats(0, 1e6), min_size=1, max_size=8)


def problem(entries=1000):
    """Return a problem with two factors that share one table."""
    table = Factor.of((0,), np.arange(entries))
    return Problem(("x", "y"), [entries, entries], ("a",), [0, 0], (table, Factor((1,), table.table)))


def test_the_shares_add_up_to_the_budget():
    shares = split_memory(100_000, problem())
    assert shares.problem == bytes_of_tables(problem()) == 4000
    assert shares.problem + shares.work + shares.agent_data == 100_000
    assert shares.agent_data < shares.steps < shares.work


def test_a_problem_larger_than_the_budget_is_rejected_with_figures():
    with pytest.raises(
        ResourceError, match=r"tables take 3\.9 KiB and budget\.memory allows 2\.9 KiB; raise budget\.memory"
    ):
        split_memory(3000, problem())


@given(NEEDS, st.floats(1, 1e7))
def test_limited_needs_add_up_to_at_most_the_total(needs, total):
    limit = largest_share(needs, total)
    assert sum(min(need, limit) for need in needs) <= total * (1 + 1e-9)
    if sum(needs) <= total:
        assert limit >= max(needs) * (1 - 1e-9)
    else:
        assert sum(min(need, limit) for need in needs) == pytest.approx(total)


@pytest.fixture
def resident(monkeypatch):
    def holds(size):
        monkeypatch.setattr(memory, "resident_memory", lambda: size)

    return holds


def test_a_claim_beyond_the_remaining_budget_is_rejected(resident):
    account = MemoryAccount()
    account.claim(1 << 40, "anything")  # no budget is open
    with account.open(100 * MB):
        resident(INTERPRETER_BYTES + 30 * MB)
        assert account.available_bytes() == 70 * MB
        account.claim(70 * MB, "tables")
        with pytest.raises(OutOfMemory, match=r"^tables: 68\.7 MiB more do not fit budget\.memory"):
            account.claim(72 * MB, "tables")
    assert account.available_bytes() is None


def test_memory_held_before_the_run_does_not_count(resident):
    account = MemoryAccount()
    resident(900 * MB)
    with account.open(100 * MB, baseline=880 * MB):
        assert account.available_bytes() == 80 * MB
    with account.open(100 * MB), pytest.raises(OutOfMemory):
        account.claim(5 * MB, "tables")


def test_memory_of_compilation_does_not_count(resident):
    account = MemoryAccount()
    with account.open(100 * MB):
        resident(INTERPRETER_BYTES)
        with account.open(1):  # a run that compiles
            for begins in (True, True, False):
                account.record_compilation(begins)
        resident(INTERPRETER_BYTES + 300 * MB)
        account.record_compilation(False)
        assert account.available_bytes() == 100 * MB
    assert account.available_bytes() is None


def test_a_nested_run_uses_the_budget_of_the_outer_run():
    account = MemoryAccount()
    with account.open(100 * MB):
        with account.open(5 * MB):
            assert account.budget == 100 * MB
        assert account.budget_share(0.5, 80 * MB) == 50 * MB and account.budget_share(0.5, 8) == 8
    assert account.budget_share(0.5, 80 * MB) == 80 * MB


def test_an_elimination_claims_its_memory_before_it_allocates(resident, monkeypatch):
    tables = [EncodedTable((0, 1), np.zeros((1500, 1500), dtype=np.int32))]
    arithmetic = choose_arithmetic([Factor.of((0, 1), np.zeros((2, 2), dtype=np.int64))])
    plan = plan_elimination([(0, 1)], np.array([1500, 1500]), [0, 1])
    resident(INTERPRETER_BYTES)
    with memory.MEMORY_ACCOUNT.open(5 * MB), pytest.raises(OutOfMemory, match="tables of 2 buckets"):
        eliminate(tables, plan, arithmetic)
    with memory.MEMORY_ACCOUNT.open(50 * MB):
        assert eliminate(tables, plan, arithmetic).total() == 0
