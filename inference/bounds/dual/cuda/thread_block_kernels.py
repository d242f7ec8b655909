# mypy: ignore-errors
"""Device functions that coordinate the threads of a block: barriers, thread groups and tiles of a matrix product.

The GPU kernels of dual ascent use them. A block works on one graph. A thread group is the set of threads that work on
the same triangles: one warp if the tables are small, else the whole block. W is the number of columns of a table, a
multiple of 8. A triangle is a triplet region of three variables; its messages are products of W x W tables. The
simulator (Numba's CUDA simulator) runs the kernels on the CPU, with a real thread per GPU thread.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import config, cuda, int32

WARP_SIZE = 32  # threads per warp
GROUP_SIZE = 3 if config.ENABLE_CUDASIM else WARP_SIZE  # threads per small triangle: a warp, or the simulator's block
LINE_THREADS = 1 if config.ENABLE_CUDASIM else 4  # threads that process one row or column of a table together
MAX_TILE_COLUMNS = 3  # most columns of a product that a thread computes, with twice as many rows
MAX_TILE_CELLS = 18  # most entries of a product that a thread computes: 3 columns and 6 rows
MAX_WARP_COLUMNS = 24  # largest number of columns of a table for which a single warp works on a triangle


class Block(NamedTuple):
    """Arguments that all device functions of a thread block share.

    Attributes
    ----------
    descriptors : (entries,) int32
        Index arrays of all graphs, in device memory; ``descriptors.py`` defines their layout. A graph is given by the
        position of its header.
    tiles : (shared_size,) int32
        The block's dynamic shared memory.
    shared_size : int
        Number of int32 entries of ``tiles``.
    octets : tuple of W / 8 zeros
        Only its length matters: it makes the number W of columns of a table, and so all strides, a compile-time
        constant.
    """

    descriptors: Any
    tiles: Any
    shared_size: Any
    octets: Any


class TriangleGroup(NamedTuple):
    """The triangles that a thread group works on at once, and the calling thread's place in the group; all uint32.

    Attributes
    ----------
    begin : uint32
        Position in ``Block.descriptors`` of the record of the first triangle.
    tile_start : uint32
        Position in ``Block.tiles`` of the first triangle, as three tables ab, ac, bc of W rows of W + 1 entries.
    count : uint32
        Number of triangles.
    lane, lanes : uint32
        Number of this thread in its group, and number of threads of the group.
    """

    begin: Any
    tile_start: Any
    count: Any
    lane: Any
    lanes: Any


@cuda.jit(device=True)
def span(descriptors, graph, starts, i):
    """Return the first position of part i of a graph's list and the position after its last one.

    ``starts`` is the field of the graph's header that leads to the list's start positions.
    """
    position = descriptors[graph + starts] + i
    return descriptors[position], descriptors[position + 1]


@cuda.jit(device=True)
def any_thread(condition):
    """Wait for all threads of the block; return whether ``condition`` is true for any of them."""
    # There must be no branch here: from Python 3.12 on, each branch would end in a separate barrier, where a warp whose
    # threads disagree would wait for ever.
    return cuda.syncthreads_or(np.int32(condition)) != 0


if config.ENABLE_CUDASIM:

    @cuda.jit(device=True, inline="always")
    def shared_array():
        """Return the block's dynamic shared memory as an int32 array, aligned to 16 bytes."""
        return cuda.shared.array(0, int32)

    @cuda.jit(device=True)
    def group_barrier(alone):
        """Wait for all threads of the thread group: a single warp if ``alone``, else the whole block."""
        cuda.syncthreads()

else:

    @cuda.jit(device=True, inline="always")
    def shared_array():
        """Return the block's dynamic shared memory as an int32 array, aligned to 16 bytes."""
        return cuda.shared.array(0, int32, alignment=16)

    @cuda.jit(device=True)
    def group_barrier(alone):
        """Wait for all threads of the thread group: a single warp if ``alone``, else the whole block."""
        if alone:
            cuda.syncwarp()
        else:
            cuda.syncthreads()


@cuda.jit(device=True)
def thread_group(capacity, width):
    """Return how triangles are distributed over the thread groups of the block.

    A thread group is a warp if a table has at most ``MAX_WARP_COLUMNS`` columns; there are as many groups as
    ``capacity`` permits. Otherwise the whole block is the only group.

    Parameters
    ----------
    capacity : uint32
        Number of triangles that fit into the block's shared memory.
    width : int
        Number W of columns of a table.

    Returns
    -------
    first : uint32
        Position of this group's first triangle. A group whose ``first`` is not less than ``step`` has no work.
    step : uint32
        Number of triangles that the block works on at once.
    max_count : uint32
        Largest number of triangles that this group works on at once.
    lane, lanes : uint32
        Number of this thread in its group, and number of threads of the group.
    """
    tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    if width <= MAX_WARP_COLUMNS:
        groups = min(np.uint32(capacity), np.uint32(threads // np.uint32(GROUP_SIZE)))
        return (
            np.uint32(tid // np.uint32(GROUP_SIZE)),
            groups,
            np.uint32(1),
            np.uint32(tid % np.uint32(GROUP_SIZE)),
            np.uint32(GROUP_SIZE),
        )
    return np.uint32(0), np.uint32(capacity), np.uint32(capacity), tid, threads


@cuda.jit(device=True)
def thread_tile(bands):
    """Return a thread's tile of a product of tables with W = 8 * ``bands`` columns.

    A thread computes ``edge`` columns and 2 * ``edge`` rows of the product, which are spread over the table: the
    threads whose first entries are (i0, j0) with i0 < ``down`` and j0 < ``across`` cover the whole product.

    Returns
    -------
    edge : uint32
        Number of columns.
    across : uint32
        Distance between two columns of the tile.
    down : uint32
        Distance between two rows of the tile.
    """
    edge = np.uint32(3 if bands % 3 == 0 else 2 if bands % 2 == 0 else 1)
    width = np.uint32(8 * bands)
    return edge, np.uint32(width // edge), np.uint32(width // (np.uint32(2) * edge))
