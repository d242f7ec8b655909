"""Rank 0 deals a problem out: each rank gets its own agents' parts, as ``dmcmc split`` would write them.

An agent's part goes as bytes of its own, so that neither sender nor receiver ever has a second copy of all of them.
"""

import pickle
from collections.abc import Iterable, Sequence

import numpy as np

from dmcmc.inference.model.problem import Problem
from dmcmc.mpi.wire import slices
from dmcmc.mpi.world import World

_TAG = 64  # beside those of agents' messages
_LIMIT = 1 << 30  # bytes of one message: counts of MPI are 31 bits wide


def dealt(parts: Sequence[Problem] | None, known: Sequence[Sequence[int]], world: World) -> dict[int, Problem]:
    """Hand each rank the parts of some agents; return this rank's. Rank 0, which knows all, gets none.

    Parameters
    ----------
    parts
        All agents' on rank 0, None elsewhere.
    known
        Of each rank the agents whose parts it gets.
    """
    if parts is None:
        return {agent: _received(world) for agent in known[world.rank]}
    for rank in range(1, world.size):
        _send((parts[agent] for agent in known[rank]), rank, world)
    return {}


def _send(parts: Iterable[Problem], rank: int, world: World) -> None:
    for part in parts:
        data = np.frombuffer(pickle.dumps(part, pickle.HIGHEST_PROTOCOL), dtype=np.uint8)
        world.comm.Send(np.array([data.size], dtype=np.int64), dest=rank, tag=_TAG)
        for piece in slices(data, _LIMIT):
            world.comm.Send(piece, dest=rank, tag=_TAG)
        world.count("deal", 1, data.nbytes)


def _received(world: World) -> Problem:
    size = np.empty(1, dtype=np.int64)
    world.comm.Recv(size, source=0, tag=_TAG)
    data = np.empty(int(size[0]), dtype=np.uint8)
    for piece in slices(data, _LIMIT):
        world.comm.Recv(piece, source=0, tag=_TAG)
    part: Problem = pickle.loads(data.data)
    return part
