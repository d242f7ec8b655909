"""Bounds and answers that the threads of a rank find together.

Bound an agent's rows on several ranks: the agent's rank, which is the first of a team, and ranks without an agent.

A row is an assignment of the agent's boundary variables; its upper bound comes from dual ascent. The first rank sends
the reparametrised potentials whenever they have changed, and the rows to bound. Each rank ascends its part of the rows,
and the first rank collects the bounds and the remaining values. The other ranks know nothing else of the bound.

The first rank's message is a list of arrays: a header (seconds left, ``ROWS``, sweeps, temperature, whether there are
cutoffs, whether the other ranks already have the potentials), the rows, the cutoffs, and then the graphs and potentials
if they are new.

Improve an agent's rows on several ranks: the agent's rank, which is the first of a team, and ranks without an agent.

The first rank sends the rows to sample and their current states, so that the others continue from these. Each rank
works on a share of the rows; random numbers are keyed by rows. :mod:`dmcmc.samplers.in_team` does the same for rows to
bound.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.dual_bound import RowAscentTask, ascend_rows
from dmcmc.inference.bounds.dual.graph import DualGraph, DualPotentials, RowGraphs
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.protocol import RankArrays, RankTeam, Resumable, rows_of_rank
from dmcmc.samplers.cpu.launch import Chains
from dmcmc.samplers.methods.blocks import BlockChains

ROWS = 2.0  # in the second entry of the first rank's message: rows are to be bounded

_NO_BOUND = np.iinfo(np.int64).max


class TeamRowBounds:
    """The first rank's interface to the other ranks; implements ``RowHelpers`` of the dual bound."""

    def __init__(self, team: RankTeam) -> None:
        self.size, self._team = team.size, team
        # What the other ranks have: the potentials, and the sweeps made by then; None before the first message.
        self._known: tuple[DualPotentials, int] | None = None

    def wanted(self, work: RowAscentTask) -> bool:
        """Return whether the work is worth the communication."""
        sent = 0 if self._knows(work) else sum(part.size for part in work.potentials)
        return (
            work.rows.size >= tuning.FEW_ROWS * self.size
            and work.entries >= tuning.MAX_COPIED_ENTRIES + tuning.ENTRIES_PER_SENT * sent
        )

    def ascend(self, work: RowAscentTask, bounds: Ints, backend: Backend) -> None:
        """Lower the bounds of some rows, each rank those of its part.

        Parameters
        ----------
        work : RowAscentTask
            The rows and all data that the ascent needs.
        bounds : (all rows,) int64
            Upper bounds of the agent's rows; lowered in place.
        backend : Backend
            Threads and deadline of this rank.
        """
        self._team.allgather(lambda: self._message(work, backend))
        self._known = work.potentials, work.sweeps_done

        def ascend_own_part() -> RankArrays:
            ascend_rows(work.of(*rows_of_rank(work.rows.size, self._team)), bounds, backend)
            return []

        for rank, part in enumerate(self._team.allgather(ascend_own_part)):
            if rank > 0:
                np.minimum.at(bounds, work.of(*rows_of_rank(work.rows.size, self._team, rank)).rows, part[0])

    def _knows(self, work: RowAscentTask) -> bool:
        """Return whether the other ranks have these potentials: the same arrays, with no sweeps since."""
        return self._known is not None and self._known[0] is work.potentials and self._known[1] == work.sweeps_done

    def _message(self, work: RowAscentTask, backend: Backend) -> RankArrays:
        """Return the message to the other ranks."""
        is_known, cutoffs, graphs = self._knows(work), work.cutoffs, work.graphs
        header = [backend.stop.left, ROWS, work.sweeps, work.initial_temperature, cutoffs is not None, is_known]
        message: list[Array] = [np.array(header, dtype=np.float64), work.rows]
        message.append(np.zeros(0, dtype=np.int64) if cutoffs is None else cutoffs)
        return (
            message
            if is_known
            else [*message, graphs.sliced_factors, graphs.shape, *graphs.whole, *graphs.hidden, *work.potentials]
        )


class RowBoundHelper:
    """Bounds rows on one of the other ranks."""

    def __init__(self, backend: Backend, team: RankTeam) -> None:
        self._backend, self._team = backend, team
        self._work: RowAscentTask | None = None  # from the last message with potentials; None before the first one

    def ascend(self, message: Sequence[Array]) -> None:
        """Lower the bounds of this rank's part of the rows in the first rank's message."""
        self._team.allgather(lambda: self._ascend_part(message))

    def _ascend_part(self, message: Sequence[Array]) -> RankArrays:
        """Return the bounds of this rank's part."""
        begun, (header, rows, cutoffs, *arrays) = time.perf_counter(), message
        left, _, sweeps, temperature, pruning, is_known = header.tolist()
        if not is_known:
            graph_end = 2 + len(DualGraph._fields)
            second_graph_end = graph_end + len(DualGraph._fields)
            whole, hidden = DualGraph(*arrays[2:graph_end]), DualGraph(*arrays[graph_end:second_graph_end])
            graphs, potentials = RowGraphs(whole, hidden, *arrays[:2]), DualPotentials(*arrays[second_graph_end:])
            self._work = RowAscentTask(graphs, potentials, 0, rows, 0, np.float32(0), None)
        assert self._work is not None, "the potentials come first"
        work = self._work._replace(
            rows=rows,
            cutoffs=cutoffs if pruning else None,
            sweeps=int(sweeps),
            initial_temperature=np.float32(temperature),
        ).of(*rows_of_rank(rows.size, self._team))
        bounds = np.full(int(np.prod(work.graphs.shape)), _NO_BOUND, dtype=np.int64)
        ascend_rows(work, bounds, replace(self._backend, stop=self._stop(left, begun)))
        return [bounds[work.rows]]

    def _stop(self, left: float, begun: float) -> Deadline:
        """Return the deadline; there is none if the first rank has none."""
        return NO_DEADLINE if left == np.inf else self._backend.stop.by(begun + left)


_NO_MORE_WORK = -1.0  # in place of seconds: there is no more work


def improve(chains: Resumable, rows: NDArray[np.int64], seconds: float, threads: int, team: RankTeam) -> None:
    """Improve some rows for about ``seconds``, together with the team's other ranks; called by the first rank.

    Parameters
    ----------
    chains : Resumable
        The agent's chains; the first rank works alone unless they are plain chains or block moves on the CPU.
    rows : (k,) int64
        The rows to improve, ascending.
    seconds : float
        Time limit.
    threads : int
        Threads of this rank.
    team : RankTeam
        The ranks.
    """
    if team.size == 1 or not isinstance(chains, Chains | BlockChains):
        chains.improve(rows, seconds, threads)
        return
    header = np.array([seconds, isinstance(chains, BlockChains)], dtype=np.float64)
    team.allgather(lambda: [header, rows, *chains.export_rows(rows, chains.updates)])
    _improve_shares(chains, rows, seconds, threads, team)


def end(team: RankTeam) -> None:
    """Send the team's other ranks the message that there is no more work; called by the first rank."""
    team.allgather(lambda: [np.array([_NO_MORE_WORK, 0.0])])


def help_on(chains: Resumable | None, backend: Backend, team: RankTeam) -> Resumable | None:
    """Work on the first rank's requests until there are no more; called by the other ranks.

    Parameters
    ----------
    chains : Resumable or None
        The agent's chains after the first tables on this rank; None if it has none.
    backend : Backend
        Threads and deadline of this rank.
    team : RankTeam
        The ranks.

    Returns
    -------
    Resumable or None
        ``chains``, or the block moves with which the first rank continues.
    """
    bound_helper = RowBoundHelper(backend, team)
    while True:
        message = team.allgather(_nothing)[0]
        seconds, kind, *_ = message[0].tolist()
        if seconds == _NO_MORE_WORK:
            return chains
        if kind == ROWS:
            bound_helper.ascend(message)
            continue
        assert isinstance(chains, Chains | BlockChains), "the first rank has such chains"
        if kind and isinstance(chains, Chains):
            chains = BlockChains(chains.local, chains.sampling, chains.states)
        rows: NDArray[Any] = message[1]
        chains.import_rows(rows, message[2:])
        _improve_shares(chains, rows, seconds, backend.threads, team)


def _nothing() -> RankArrays:
    """Return an empty message."""
    return []


def _improve_shares(
    chains: Chains | BlockChains, rows: NDArray[np.int64], seconds: float, threads: int, team: RankTeam
) -> None:
    """Improve this rank's share of the rows, and take the other ranks' results."""
    shares = [rows[slice(*rows_of_rank(rows.size, team, rank))] for rank in range(team.size)]

    def work() -> list[Array]:
        """Improve this rank's rows and return their states."""
        draws = chains.updates
        chains.improve(shares[team.rank], seconds, threads)
        return chains.export_rows(shares[team.rank], draws)

    for rank, part in enumerate(team.allgather(work)):
        if rank != team.rank:
            chains.import_rows(shares[rank], part)
