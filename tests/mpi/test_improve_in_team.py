"""Rows that several ranks sample or bound are equal to those of one rank."""

import threading

import numpy as np
import pytest
from support.runs import hard_problem, sizes

from dmcmc.inference.bounds.dual.dual_bound import DualState, ascend_rows
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import CPU
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.samplers import in_team as bound_in_team
from dmcmc.samplers import registry
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.protocol import SINGLE_RANK, Sampling
from dmcmc.samplers.cpu.chain_kernels import compile_chains
from dmcmc.samplers.cpu.launch import Chains
from dmcmc.samplers.in_team import RowBoundHelper, TeamRowBounds, end, help_on, improve
from dmcmc.samplers.methods.blocks import BlockChains

LIMIT = 600  # seconds, against a deadlock


class Member:
    """One of several threads, each of which stands for a rank."""

    def __init__(self, rank, arrays, barrier):
        self.rank, self.size, self._arrays, self._barrier = rank, len(arrays), arrays, barrier

    def allgather(self, work):
        self._arrays[self.rank] = [np.array(array) for array in work()]
        self._barrier.wait(LIMIT)
        parts = list(self._arrays)
        self._barrier.wait(LIMIT)
        return parts


class FixedWork(Chains):
    """Chains that continue with a pass of fixed work, whatever its time."""

    def improve(self, rows, seconds, threads):
        self.plan(20, 2, rows.size)
        for number in range(len(self.current.rounds)):
            for task in self.tasks(number, 1, np.zeros(1, dtype=np.uint8), rows):
                task()


class FixedBlocks(BlockChains):
    """Block moves that only gain, in each row."""

    def improve(self, rows, seconds, threads):
        for row in rows.tolist():
            self.states[row] = np.minimum(self.states[row] + row % 2, self.local.domains[list(self.local.hidden)] - 1)


def chains_of(local):
    sampler = registry.get("gibbs").sampler
    return FixedWork(local, Sampling(choose_arithmetic(local.factors)), sampler, compile_chains(sampler))


def local_problem():
    return next(local for local in divide(hard_problem(variables=6, agents=3, domain=9)).locals if local.rows > 1)


def sampled_in_team(size, chains, rows, times):
    """Let the first of some members continue sampling several times; the others help."""

    def work(member):
        for _ in range(times):
            improve(chains[0], rows, 1.0, 1, member)

    return helped(size, chains, work)


def helped(size, chains, work):
    """Run a function on the first of some members with the others' help; return their chains."""
    messages, barrier, final = [None] * size, threading.Barrier(size), list(chains)

    def first():
        member = Member(0, messages, barrier)
        work(member)
        end(member)

    def other(rank):
        final[rank] = help_on(chains[rank], CPU, Member(rank, messages, barrier))

    threads = [
        threading.Thread(target=first if rank == 0 else other, args=() if rank == 0 else (rank,))
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    return final


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_rows_sampled_in_a_team_equal_those_of_one_rank(size):
    local = local_problem()
    rows = np.arange(0, local.rows, 2)
    alone = chains_of(local)
    for _ in range(2):
        improve(alone, rows, 1.0, 1, SINGLE_RANK)
    chains_after = sampled_in_team(size, [chains_of(local) for _ in range(size)], rows, times=2)
    for one in chains_after:
        for sampled, expected in zip(one.best.after, alone.best.after, strict=True):
            np.testing.assert_array_equal(sampled[rows], expected[rows])
        np.testing.assert_array_equal(one.best.drawn, alone.best.drawn)
    assert chains_after[0].updates == alone.updates and chains_after[0].other_ranks_draws > 0
    assert sum(chains_after[0].draws) < alone.updates, "others have done their part"


def test_helpers_continue_from_the_first_ranks_states():
    local, size = local_problem(), 3
    chains = [chains_of(local) for _ in range(size)]
    rows = np.arange(local.rows)
    for one in chains[1:]:
        one.best.after[1][:] = one.local.domains[list(local.hidden)] - 1
    improve(alone := chains_of(local), rows, 1.0, 1, SINGLE_RANK)
    chains_after = sampled_in_team(size, chains, rows, times=1)
    np.testing.assert_array_equal(chains_after[0].states, alone.states)


def test_helpers_switch_to_block_moves_with_the_first_rank(monkeypatch):
    from dmcmc.samplers import in_team as improve_in_team

    monkeypatch.setattr(improve_in_team, "BlockChains", FixedBlocks)
    local, size = local_problem(), 3
    chains = [chains_of(local) for _ in range(size)]
    rows, states = np.arange(local.rows), chains[0].states.copy()
    first = FixedBlocks(local, chains[0].sampling, states)
    alone = FixedBlocks(local, chains[0].sampling, states)
    alone.improve(rows, 1.0, 1)
    chains_after = sampled_in_team(size, [first, *chains[1:]], rows, times=1)
    assert all(isinstance(one, FixedBlocks) for one in chains_after)
    np.testing.assert_array_equal(first.states, alone.states)
    assert (first.states != states).any()


def test_a_helper_without_chains_receives_the_end():
    local = local_problem()
    assert sampled_in_team(2, [chains_of(local), None], np.arange(local.rows), times=0)[1] is None


@pytest.mark.parametrize("size", [2, 3, 8])
def test_rows_bounded_in_a_team_equal_those_of_one_rank(size, monkeypatch):
    monkeypatch.setattr(tuning, "ENTRIES_PER_SENT", 0)
    monkeypatch.setattr(bound_in_team, "tuning", sizes(MAX_COPIED_ENTRIES=0, FEW_ROWS=0))
    local, potentials_sent, ascend = local_problem(), [], RowBoundHelper.ascend

    def record_message(helper, message):
        potentials_sent.append(len(message) > 3)  # more than a header, the rows and their cutoffs
        ascend(helper, message)

    monkeypatch.setattr(RowBoundHelper, "ascend", record_message)
    alone, state = DualState(local, triangles=True), DualState(local, triangles=True)

    def work(member):
        state.helpers = TeamRowBounds(member)
        for sweeps, rows in ((0, None), (0, np.arange(1, local.rows, 3)), (3, np.arange(5)), (2, None)):
            for one in (alone, state):
                one.improve(sweeps=sweeps, rows=rows)
            np.testing.assert_array_equal(state.bounds, alone.bounds)
        cutoffs = np.sort(alone.bounds)[local.rows // 2] / 2.0**alone.layout.scale.shift + np.zeros(local.rows)
        for one in (alone, state):
            one.prune(cutoffs, sweeps=4)
        np.testing.assert_array_equal(state.bounds, alone.bounds)

    helped(size, [None] * size, work)
    assert potentials_sent == np.repeat([True, False, True, False, True], size - 1).tolist(), "sent only if changed"


def test_rows_without_time_on_another_rank_keep_their_bounds(monkeypatch):
    monkeypatch.setattr(tuning, "ENTRIES_PER_SENT", 0)
    monkeypatch.setattr(bound_in_team, "tuning", sizes(MAX_COPIED_ENTRIES=0, FEW_ROWS=0))
    local = local_problem()
    state = DualState(local, triangles=True)
    state.improve(sweeps=0)
    before, half = state.bounds.copy(), local.rows // 2

    def cut_short(work, bounds, backend):
        if work.rows[0] < half:
            ascend_rows(work, bounds, backend)

    monkeypatch.setattr(bound_in_team, "ascend_rows", cut_short)

    def work(member):
        state.helpers = TeamRowBounds(member)
        state.prune(np.full(local.rows, -np.inf), sweeps=2)

    helped(2, [None] * 2, work)
    assert (state.bounds[:half] < before[:half]).any()
    np.testing.assert_array_equal(state.bounds[half:], before[half:])


@pytest.mark.parametrize("seconds", [(1e-9, 10.0), (10.0, 1e-9), (0.0, 5.0), (-1.0, 5.0)])
def test_ranks_sample_the_same_rounds_although_their_clocks_differ(seconds):
    """A rank whose clock is ahead has less time left; the ranks of a team shorten their first passes equally."""
    local, size = local_problem(), len(seconds)
    messages, barrier, passes = [None] * size, threading.Barrier(size), [None] * size

    def sample(rank):
        sampling = Sampling(
            choose_arithmetic(local.factors),
            samples=500,
            seconds=seconds[rank],
            team=Member(rank, messages, barrier),
            incumbent=np.zeros(local.domains.size, dtype=np.int64),
        )
        passes[rank] = registry.get("gibbs").start([local], sampling)[0]

    threads = [threading.Thread(target=sample, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    first, second = passes
    assert [r.temperatures.size for r in first.current.rounds] == [r.temperatures.size for r in second.current.rounds]
    assert first.current.runs == second.current.runs and first.planned_draws < local.rows * 10 * 500 * len(local.hidden)
    np.testing.assert_array_equal(first.states, second.states)
