"""Whether the CPU or a GPU passes messages in junction trees and joins sparse rows.

Choose where the passes over a junction tree run: on the CPU, or on a GPU if that is faster and fits its memory.

Choose where the rows of sparse messages are built: on the CPU, or on a GPU if that is faster and fits its memory.

A sparse message lists its allowed rows. ``inference.sparse.bucket_rows`` builds them by joining one table per step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.junction_tree.cliques import CliqueTree
from dmcmc.inference.junction_tree.cuda.passes import CudaPasses, TreeExceedsDevice
from dmcmc.inference.junction_tree.cuda.sparse_passes import CudaSparsePasses
from dmcmc.inference.junction_tree.passes import CliqueTreePasses, MessagePassing
from dmcmc.inference.junction_tree.sparse_passes import SparsePasses
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import CpuFallback, shared_device
from dmcmc.inference.sparse.bucket_rows import RowBuilder, RowDevice
from dmcmc.inference.sparse.cuda.extend_rows import GpuRowExtender, RowsExceedDevice
from dmcmc.inference.tuning import CELLS_PER_SECOND, SECONDS_PER_SPARSE_ROW, STORED_SHARE


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

    with CpuFallback(TreeExceedsDevice):
        return CudaPasses(host, tree, shared_device(), backend.limit())
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
    with CpuFallback(TreeExceedsDevice):
        return CudaSparsePasses(host, shared_device(), backend.limit())
    return host


@dataclass(frozen=True)
class RowsOnGpu:
    """The GPU of a backend, as a device that builds rows of sparse messages."""

    backend: Backend

    def worth(self, seconds: float) -> bool:
        """Return whether work that takes one core this many seconds should run on the GPU."""
        return self.backend.worth_gpu(seconds)

    def carry(self, builder: RowBuilder, ranges: Sequence[tuple[int, int]], stop: Deadline) -> bool:
        """Build the rows of consecutive ranges of initial rows on the device; return whether its memory sufficed.

        If it returns False, no rows were added and the CPU builds them.

        Parameters
        ----------
        builder
            The builder of a message's rows; it receives them.
        ranges
            First and end of each range of initial rows, which are extended by one table per step.
        stop
            The deadline.
        """
        with CpuFallback(RowsExceedDevice):
            extender = GpuRowExtender(builder, shared_device(), int(STORED_SHARE * self.backend.limit()))
            builder.add_ranges(ranges, extender.carry(ranges[0][0], ranges[-1][1], builder.start, stop))
            return True
        return False


def rows_on_gpu(backend: Backend) -> RowDevice | None:
    """Return the GPU as a device that builds rows in addition to the CPU; None without a GPU."""
    return None if backend.device == "cpu" else RowsOnGpu(backend)
