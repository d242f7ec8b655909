"""Choose where the rows of sparse messages are built: on the CPU, or on a GPU if that is faster and fits its memory.

A sparse message lists its allowed rows. ``inference.sparse.bucket_rows`` builds them by joining one table per step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.tuning import STORED_SHARE
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import leave_to_cpu, shared_device
from dmcmc.inference.sparse.bucket_rows import RowBuilder, RowDevice


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
        from dmcmc.inference.sparse.cuda.extend_rows import GpuRowExtender, RowsExceedDevice

        try:
            extender = GpuRowExtender(builder, shared_device(), int(STORED_SHARE * self.backend.limit()))
            builder.add_ranges(ranges, extender.carry(ranges[0][0], ranges[-1][1], builder.start, stop))
        except RowsExceedDevice:
            return False
        except Exception as error:
            if not leave_to_cpu(error):
                raise
            return False
        return True


def rows_on_gpu(backend: Backend) -> RowDevice | None:
    """Return the GPU as a device that builds rows in addition to the CPU; None without a GPU."""
    return None if backend.device == "cpu" else RowsOnGpu(backend)
