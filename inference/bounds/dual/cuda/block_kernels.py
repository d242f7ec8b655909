# mypy: ignore-errors
"""What a block's threads tell each other, and how they take tables from memory."""

import numpy as np
from numba import cuda

LANES, AT_ONCE = 32, 6  # threads of a warp; entries that a thread takes from memory before it uses the first


@cuda.jit(device=True)
def anywhere(over):
    """Wait for all threads of the block; return whether it is true for one of them."""
    return cuda.syncthreads_or(np.int32(1) if over else np.int32(0)) != 0
