"""Choose where the passes over a junction tree run: on the CPU, or on a GPU if that is faster and fits its memory."""

from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.tuning import CELLS_PER_SECOND, SECONDS_PER_SPARSE_ROW
from dmcmc.inference.junction_tree.cliques import CliqueTree
from dmcmc.inference.junction_tree.passes import CliqueTreePasses, MessagePassing
from dmcmc.inference.junction_tree.sparse_passes import SparsePasses
from dmcmc.inference.runtime.device import leave_to_cpu, shared_device


def passes_on(backend: Backend, host: CliqueTreePasses, tree: CliqueTree) -> MessagePassing:
    """Return the passes of a tree on the device of choice.

    Parameters
    ----------
    backend
        The processors.
    host
        The passes on the CPU; returned if they are to be used.
    tree
        The clique tree.
    """
    if not backend.worth_gpu(float(host.layout.cells.sum(dtype=float)) / CELLS_PER_SECOND):
        return host
    from dmcmc.inference.junction_tree.cuda.passes import CudaPasses, TreeExceedsDevice

    try:
        return CudaPasses(host, tree, shared_device(), backend.limit())
    except TreeExceedsDevice:
        return host
    except Exception as error:
        if not leave_to_cpu(error):
            raise
        return host


def row_passes_on(backend: Backend, host: SparsePasses) -> MessagePassing:
    """Return the passes over sparse cliques, which list their allowed rows, on the device of choice.

    Parameters
    ----------
    backend
        The processors.
    host
        The passes on the CPU; returned if they are to be used.
    """
    if not backend.worth_gpu(SECONDS_PER_SPARSE_ROW * host.rows):
        return host
    from dmcmc.inference.junction_tree.cuda.passes import TreeExceedsDevice
    from dmcmc.inference.junction_tree.cuda.sparse_passes import CudaSparsePasses

    try:
        return CudaSparsePasses(host, shared_device(), backend.limit())
    except TreeExceedsDevice:
        return host
    except Exception as error:
        if not leave_to_cpu(error):
            raise
        return host
