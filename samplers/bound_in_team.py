"""Bound an agent's rows on several ranks: the agent's rank, which is the first of a team, and ranks without an agent.

A row is an assignment of the agent's boundary variables; its upper bound comes from dual ascent. The first rank sends
the reparametrised potentials whenever they have changed, and the rows to bound. Each rank ascends its part of the rows,
and the first rank collects the bounds and the remaining values. The other ranks know nothing else of the bound.

The first rank's message is a list of arrays: a header (seconds left, ``ROWS``, sweeps, temperature, whether there are
cutoffs, whether the other ranks already have the potentials), the rows, the cutoffs, and then the graphs and potentials
if they are new.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dmcmc.inference.bounds.dual.graph import DualGraph, DualPotentials, RowGraphs
from dmcmc.inference.bounds.dual.row_ascent import RowAscentTask, ascend_rows
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.samplers.contract.team import RankArrays, RankTeam, rows_of_rank
from dmcmc.samplers.tuning import chains as tuning
from dmcmc.samplers.tuning import common

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
            work.rows.size >= common.FEW_ROWS * self.size
            and work.entries >= common.MAX_COPIED_ENTRIES + tuning.ENTRIES_PER_SENT * sent
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
