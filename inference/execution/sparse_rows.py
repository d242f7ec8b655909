"""Where the rows of incomplete messages are made: on the CPU, or on a GPU where that is worth it and has room."""

from collections.abc import Sequence
from dataclasses import dataclass

from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.device import is_out_of_memory, shared_device
from dmcmc.inference.sparse.bucket_rows import Elsewhere, Making

_PART = 2  # of the device's memory: the rest is that of dense tables


@dataclass(frozen=True)
class RowsOnGpu:
    """The GPU of a backend."""

    backend: Backend

    def worth(self, seconds: float) -> bool:
        """Return whether what takes one core so many seconds is worth the way there and back."""
        return self.backend.worth(seconds)

    def carry(self, making: Making, ranges: Sequence[tuple[int, int]], stop: Stop) -> bool:
        """Carry ranges; return whether the device had room."""
        from dmcmc.inference.sparse.cuda.extend_rows import Carrier, NoRoom

        try:
            carrier = Carrier(making, shared_device(), self.backend.limit() // _PART)
            making.take(ranges, carrier.carry(ranges[0][0], ranges[-1][1], making.start, stop))
        except NoRoom:
            return False
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            shared_device().release()
            return False
        return True


def rows_on_gpu(backend: Backend) -> Elsewhere | None:
    """Return where a backend makes rows beside the CPU; None without a GPU."""
    return None if backend.device == "cpu" else RowsOnGpu(backend)
