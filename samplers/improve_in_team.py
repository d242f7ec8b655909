"""Improve an agent's rows on several ranks: the agent's rank, which is the first of a team, and ranks without an agent.

The first rank sends the rows to sample and their current states, so that the others continue from these. Each rank
works on a share of the rows; random numbers are keyed by rows. :mod:`dmcmc.samplers.bound_in_team` does the same for
rows to bound.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.bound_in_team import ROWS, RowBoundHelper
from dmcmc.samplers.contract.protocol import Resumable
from dmcmc.samplers.contract.team import RankArrays, RankTeam, rows_of_rank
from dmcmc.samplers.cpu.launch import Chains
from dmcmc.samplers.methods.block_chains import BlockChains

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
