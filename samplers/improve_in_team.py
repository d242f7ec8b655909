"""An agent's rows worked on by several ranks: its own, which is the first of a team, and those that own no agent.

The first says which rows are to be sampled on, and how they are: whatever else it has done with them meanwhile, the
others go on from there. Each rank works on a share of them; random numbers are keyed by rows. The same for rows that
are to be bounded is in :mod:`dmcmc.samplers.bound_in_team`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.bound_in_team import ROWS, Helping
from dmcmc.samplers.contract.protocol import Resumable
from dmcmc.samplers.contract.team import Parts, Team, share_of
from dmcmc.samplers.cpu.launch import Chains
from dmcmc.samplers.methods.block_chains import BlockChains

_OVER = -1.0  # in place of seconds: there is nothing more to do


def improve(chains: Resumable, rows: NDArray[np.int64], seconds: float, threads: int, team: Team) -> None:
    """Work on some rows for about some seconds, with the team's other ranks; called by the first.

    Parameters
    ----------
    chains
        Alone where they are no plain chains or block moves on the CPU.
    rows : ascending
        Those that matter.
    """
    if team.size == 1 or not isinstance(chains, Chains | BlockChains):
        chains.improve(rows, seconds, threads)
        return
    told = np.array([seconds, isinstance(chains, BlockChains)], dtype=np.float64)
    team.together(lambda: [told, rows, *chains.part(rows, chains.updates)])
    _share_out(chains, rows, seconds, threads, team)


def end(team: Team) -> None:
    """Tell the team's other ranks that there is nothing more to do; called by the first."""
    if team.size > 1:
        team.together(lambda: [np.array([_OVER, 0.0])])


def help_on(chains: Resumable | None, backend: Backend, team: Team) -> Resumable | None:
    """Work on what the first rank of the team asks for, until there is nothing more; called by the others.

    Parameters
    ----------
    chains
        The agent's, as first tables have left them here; None where they have none.
    backend
        Threads, and until when.

    Returns
    -------
    Resumable or None
        The same, or the block moves that the first rank goes on with.
    """
    bounding = Helping(backend, team)
    while True:
        told = team.together(_nothing)[0]
        seconds, blocks, *_ = told[0].tolist()
        if seconds == _OVER:
            return chains
        if blocks == ROWS:
            bounding.ascend(told)
            continue
        assert isinstance(chains, Chains | BlockChains), "the first rank has such chains"
        if blocks and isinstance(chains, Chains):
            chains = BlockChains(chains.local, chains.sampling, chains.states)
        rows: NDArray[Any] = told[1]
        chains.take(rows, told[2:])
        _share_out(chains, rows, seconds, backend.threads, team)


def _nothing() -> Parts:
    return []


def _share_out(chains: Chains | BlockChains, rows: NDArray[np.int64], seconds: float, threads: int, team: Team) -> None:
    """Work on this rank's share of the rows, and take what others have made of theirs."""
    shares = [rows[slice(*share_of(rows.size, team, rank))] for rank in range(team.size)]

    def work() -> list[Array]:
        draws = chains.updates
        chains.improve(shares[team.rank], seconds, threads)
        return chains.part(shares[team.rank], draws)

    for rank, part in enumerate(team.together(work)):
        if rank != team.rank:
            chains.take(shares[rank], part)
