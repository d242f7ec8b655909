"""Scatter a problem: each rank receives its agents' parts from rank 0, as ``dmcmc split`` would write them.

Each agent's part is sent as one byte buffer. Tables are sent as they lie in memory, not pickled, so that neither
sender nor receiver ever holds a second copy of all of them.
"""

import pickle
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.mpi.world import World, byte_slices

_TAG = 64  # MPI tag, unlike those of agents' messages
_ALIGNMENT = 64  # alignment of tables in bytes: suits all number types, and is one cache line
_MAX_MESSAGE_BYTES = 1 << 30  # largest MPI message in bytes, because MPI counts have 31 bits

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


def scatter_parts(
    parts: Sequence[Problem] | None, agents_of_rank: Sequence[Sequence[int]], world: World
) -> dict[int, Problem]:
    """Send each rank the parts of its agents; return this rank's parts. Rank 0, which has all parts, gets none.

    Parameters
    ----------
    parts
        All agents' parts on rank 0; None on other ranks.
    agents_of_rank
        For each rank the agents whose parts it receives.
    """
    if parts is None:
        return {agent: _received(world) for agent in agents_of_rank[world.rank]}
    for rank in range(1, world.size):
        _send((parts[agent] for agent in agents_of_rank[rank]), rank, world)
    return {}


def _send(parts: Iterable[Problem], rank: int, world: World) -> None:
    """Send parts to a rank."""
    for part in parts:
        data, sizes = _packed(part)
        world.comm.Send(np.array([sizes.size], dtype=np.int64), dest=rank, tag=_TAG)
        world.comm.Send(sizes, dest=rank, tag=_TAG)
        for piece in byte_slices(data, _MAX_MESSAGE_BYTES):
            world.comm.Send(piece, dest=rank, tag=_TAG)
        world.counts.add("deal", 1, data.nbytes)


def _received(world: World) -> Problem:
    """Receive one part from rank 0."""
    count = np.empty(1, dtype=np.int64)
    world.comm.Recv(count, source=0, tag=_TAG)
    sizes = np.empty(int(count[0]), dtype=np.int64)
    world.comm.Recv(sizes, source=0, tag=_TAG)
    data = np.empty(int(_offsets(sizes)[-1]), dtype=np.uint8)
    for piece in byte_slices(data, _MAX_MESSAGE_BYTES):
        world.comm.Recv(piece, source=0, tag=_TAG)
    return _unpacked(data, sizes)


def _packed(part: Problem) -> tuple[Bytes, Ints]:
    """Return a part as one byte buffer (pickled header, then 64-byte aligned tables), and the sizes of its pieces."""
    tables: list[pickle.PickleBuffer] = []
    header = pickle.dumps(part, pickle.HIGHEST_PROTOCOL, buffer_callback=tables.append)
    pieces = [memoryview(header), *(table.raw() for table in tables)]
    sizes = np.array([piece.nbytes for piece in pieces], dtype=np.int64)
    offsets = _offsets(sizes)
    data = np.zeros(int(offsets[-1]), dtype=np.uint8)
    for offset, piece in zip(offsets.tolist(), pieces, strict=False):
        data[offset : offset + piece.nbytes] = memoryview(piece)
    return data, sizes


def _unpacked(data: Bytes, sizes: Ints) -> Problem:
    """Return the part that :func:`_packed` serialised; its tables are views of ``data``."""
    header, *tables = (data[a : a + n] for a, n in zip(_offsets(sizes).tolist(), sizes.tolist(), strict=False))
    part: Problem = pickle.loads(header.data, buffers=tables)
    return part


def _offsets(sizes: Ints) -> Ints:
    """Return the offsets of aligned pieces, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(-(-sizes // _ALIGNMENT) * _ALIGNMENT)]).astype(np.int64)
