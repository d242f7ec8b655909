# mypy: ignore-errors
"""What a block's threads tell each other."""

import numpy as np
from numba import cuda


@cuda.jit(device=True)
def anywhere(over):
    """Wait for all threads of the block; return whether it is true for one of them."""
    return cuda.syncthreads_or(np.int32(1) if over else np.int32(0)) != 0
