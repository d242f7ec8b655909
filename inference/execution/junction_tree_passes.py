"""Where passes over a junction tree are made: on the CPU, or on a GPU where that is worth it and has room."""

from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.junction_tree.cliques import CliqueTree
from dmcmc.inference.junction_tree.passes import Passes, Passing
from dmcmc.inference.junction_tree.sparse_passes import RowPasses
from dmcmc.inference.runtime.device import is_out_of_memory, shared_device

_CELL = 3e-9  # seconds of a clique's entry on one core, in all passes
_ROW = 8e-7  # of a row of an incomplete clique


def passes_on(backend: Backend, host: Passes, tree: CliqueTree) -> Passing:
    """Return the passes of a tree; ``host`` are those on the CPU."""
    if not backend.worth(_CELL * float(host.layout.cells.sum(dtype=float))):
        return host
    from dmcmc.inference.junction_tree.cuda.passes import CudaPasses, NoRoom

    try:
        return CudaPasses(host, tree, shared_device(), backend.limit())
    except NoRoom:
        return host
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        shared_device().release()
        return host


def row_passes_on(backend: Backend, host: RowPasses) -> Passing:
    """Return the passes over incomplete cliques; ``host`` are those on the CPU."""
    if not backend.worth(_ROW * host.rows):
        return host
    from dmcmc.inference.junction_tree.cuda.passes import NoRoom
    from dmcmc.inference.junction_tree.cuda.sparse_passes import CudaRowPasses

    try:
        return CudaRowPasses(host, shared_device(), backend.limit())
    except NoRoom:
        return host
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        shared_device().release()
        return host
