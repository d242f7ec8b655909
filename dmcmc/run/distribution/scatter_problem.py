"""Rank 0 deals a problem out: each rank gets its own agents' parts, as ``dmcmc split`` would write them.

An agent's part goes as bytes of its own, tables as they lie in memory and not pickled, so that neither sender nor
receiver ever has a second copy of all of them.
"""

import pickle
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.mpi.wire_format import slices
from dmcmc.mpi.world import World

_TAG = 64  # beside those of agents' messages
_ALIGNED = 64  # bytes: of numbers of any type, and of a line of cache
_LIMIT = 1 << 30  # bytes of one message: counts of MPI are 31 bits wide

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


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
        data, sizes = _packed(part)
        world.comm.Send(np.array([sizes.size], dtype=np.int64), dest=rank, tag=_TAG)
        world.comm.Send(sizes, dest=rank, tag=_TAG)
        for piece in slices(data, _LIMIT):
            world.comm.Send(piece, dest=rank, tag=_TAG)
        world.count("deal", 1, data.nbytes)


def _received(world: World) -> Problem:
    count = np.empty(1, dtype=np.int64)
    world.comm.Recv(count, source=0, tag=_TAG)
    sizes = np.empty(int(count[0]), dtype=np.int64)
    world.comm.Recv(sizes, source=0, tag=_TAG)
    data = np.empty(int(_places(sizes)[-1]), dtype=np.uint8)
    for piece in slices(data, _LIMIT):
        world.comm.Recv(piece, source=0, tag=_TAG)
    return _unpacked(data, sizes)


def _packed(part: Problem) -> tuple[Bytes, Ints]:
    """Return a part as bytes: a head, and then its tables as they are, each at a multiple of 64; and their sizes."""
    tables: list[pickle.PickleBuffer] = []
    head = pickle.dumps(part, pickle.HIGHEST_PROTOCOL, buffer_callback=tables.append)
    pieces = [memoryview(head), *(table.raw() for table in tables)]
    sizes = np.array([piece.nbytes for piece in pieces], dtype=np.int64)
    places = _places(sizes)
    data = np.zeros(int(places[-1]), dtype=np.uint8)
    for place, piece in zip(places.tolist(), pieces, strict=False):
        data[place : place + piece.nbytes] = memoryview(piece)
    return data, sizes


def _unpacked(data: Bytes, sizes: Ints) -> Problem:
    """Return the part that :func:`_packed` has made bytes of; its tables lie where they have arrived."""
    head, *tables = (data[a : a + n] for a, n in zip(_places(sizes).tolist(), sizes.tolist(), strict=False))
    part: Problem = pickle.loads(head.data, buffers=tables)
    return part


def _places(sizes: Ints) -> Ints:
    """Return where pieces begin, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(-(-sizes // _ALIGNED) * _ALIGNED)]).astype(np.int64)
