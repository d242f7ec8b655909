"""How kernels work under the simulator that would work otherwise on a GPU."""

import pytest
from numba import config

from dmcmc.inference.bounds.dual.cuda import block_kernels, triangle_kernels


def all_together(monkeypatch):
    """Have all threads of a block work on triangles together, as on large ones."""
    if not config.ENABLE_CUDASIM:
        pytest.skip("kernels are compiled with what they know of the width")
    for module in (block_kernels, triangle_kernels):
        monkeypatch.setattr(module, "ALONE", 0)
