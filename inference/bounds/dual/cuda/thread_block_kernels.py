# mypy: ignore-errors
"""What a block's threads tell each other, and how they take tables from memory."""

import numpy as np
from numba import config, cuda, int32

LANES = 32  # threads of a warp
CREW = 3 if config.ENABLE_CUDASIM else LANES  # threads that work on a small triangle; the simulator's block has no more
GROUP = 1 if config.ENABLE_CUDASIM else 4  # threads that go along a line of a table side by side
EDGE, CELLS = 3, 18  # a thread makes up to so many columns of a product, twice as many rows; entries in all
ALONE = 24  # columns of a table, at most, where a warp works on a triangle by itself


@cuda.jit(device=True)
def anywhere(over):
    """Wait for all threads of the block; return whether it is true for one of them."""
    # Without a condition here: from Python 3.12 on each branch would end in a barrier of its own, where a warp whose
    # threads disagree waits for ever.
    return cuda.syncthreads_or(np.int32(over)) != 0


if config.ENABLE_CUDASIM:

    @cuda.jit(device=True, inline="always")
    def shared_words():
        """Return the block's shared memory as words; it begins where four of them can be taken at once."""
        return cuda.shared.array(0, int32)

    @cuda.jit(device=True)
    def meet(alone):
        """Wait for all threads that work on the same triangles: a warp's, or the block's."""
        cuda.syncthreads()

else:

    @cuda.jit(device=True, inline="always")
    def shared_words():
        """Return the block's shared memory as words; it begins where four of them can be taken at once."""
        return cuda.shared.array(0, int32, alignment=16)

    @cuda.jit(device=True)
    def meet(alone):
        """Wait for all threads that work on the same triangles: a warp's, or the block's."""
        if alone:
            cuda.syncwarp()
        else:
            cuda.syncthreads()


@cuda.jit(device=True)
def crew_of(slots, width):
    """Return how triangles are dealt: a crew's first one, how many there are at once, in all and of a crew; a thread's
    number in its crew, and the threads of that.

    Crews are warps where a table has few columns, as many as there are ``slots`` for; else the block is one.
    """
    tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    if width <= ALONE:
        crews = min(np.uint32(slots), np.uint32(threads // np.uint32(CREW)))
        return np.uint32(tid // np.uint32(CREW)), crews, np.uint32(1), np.uint32(tid % np.uint32(CREW)), np.uint32(CREW)
    return np.uint32(0), np.uint32(slots), np.uint32(slots), tid, threads


@cuda.jit(device=True)
def tile_of(bands):
    """Return a thread's tile of a product of tables of 8 × ``bands`` columns.

    Its columns, which are half of its rows; how many columns, and how many rows, lie between two of them.
    """
    edge = np.uint32(3 if bands % 3 == 0 else 2 if bands % 2 == 0 else 1)
    width = np.uint32(8 * bands)
    return edge, np.uint32(width // edge), np.uint32(width // (np.uint32(2) * edge))
