"""Time a bucket in chunks on a GPU with and without overlapping its transfers with kernels (CUBE, §V).

    python -m benchmarks.papers.overlapped_transfers [--cells 1e9] [--quick] [--output FILE]

The inputs lie in page-locked host memory, the message ends there, and the chunks may use a quarter of the memory of the
tables. ``upload``, ``kernel`` and ``download`` are the milliseconds of these steps of all chunks, each waited for;
``in turn`` is the time of the whole bucket so, ``overlapped`` its time with two streams, and ``gain`` is ``in turn`` /
``overlapped`` − 1. That is how the paper's 50 and 75 % are read: of three steps of equal time, overlapping can save two
thirds of the time at most, which is a gain of 200 %.

``child`` buckets read a table over all of their variables, like those of a WCSP or of a large clique; ``split`` buckets
have small tables and a large message. CPU cores take no chunks. The least of some runs is printed, after runs that are
not timed. A GPU is needed.
"""

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.elimination.streaming import INT32, bucket
from benchmarks.harness import Columns, Report, options, timed
from dmcmc.inference.elimination.arena_kernels import place_inputs
from dmcmc.inference.elimination.cuda.streaming import StreamedWork, Streaming, stream_bucket
from dmcmc.inference.elimination.eliminate import Elimination
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.runtime.device import Device, gpu_problem, shared_device

_KINDS = (("child", 10), ("child", 4), ("split", 10), ("split", 4))  # kind of bucket, and domain size
_MEMORY_DIVISOR = 4  # the chunks may use the memory of the tables divided by this number
_TABLE = Columns(
    ("bucket", "<6"), ("values", ">6d"), ("tables MB", ">9.1f"), ("chunks", ">6d"), ("upload", ">8.2f"),
    ("kernel", ">8.2f"), ("download", ">8.2f"), ("in turn", ">8.2f"), ("overlapped", ">10.2f"), ("gain", ">7.1%"),
)  # fmt: skip


class StreamedTimes(NamedTuple):
    """Times of a bucket in chunks, in seconds.

    Attributes
    ----------
    work : StreamedWork
        The chunks, and the seconds of their steps, in the fastest run without overlap.
    in_turn, overlapped : float
        The least time of a run without and with overlap.
    """

    work: StreamedWork
    in_turn: float
    overlapped: float

    @property
    def gain(self) -> float:
        """By how much the time without overlap exceeds that with overlap, as a part of the latter."""
        return self.in_turn / self.overlapped - 1


class StreamedBucket:
    """A bucket whose tables lie in page-locked memory.

    Parameters
    ----------
    kind : str
        ``child`` or ``split``.
    domain : int
        Domain size.
    cells : float
        Joined cells, approximately.
    device : Device
        The device.
    """

    def __init__(self, kind: str, domain: int, cells: float, device: Device) -> None:
        flat, plan, _ = bucket(domain, 4, kind, cells)
        self.device, self.work = device, Elimination(plan, device.page_locked(plan.entries, INT32.dtype), INT32)
        self.bytes = plan.entries * INT32.dtype.itemsize
        place_inputs(plan.program, self.work.arena, *flat, np.int32(INT32.lowest))

    @property
    def message(self) -> np.ndarray:
        """The bucket's message, a view."""
        return self.work.table(self.work.plan.output(0)).values

    def stream(self, overlaps: bool) -> StreamedWork:
        """Join the bucket in chunks on the GPU alone."""
        limits = Streaming(self.bytes // _MEMORY_DIVISOR, shares=False, overlaps=overlaps)
        return stream_bucket(self.work, 0, MAX_PLUS, 1, self.device, limits)

    def times(self, repeats: int) -> StreamedTimes:
        """Time the bucket with and without overlap.

        Raises
        ------
        ArithmeticError
            If the messages differ.
        """
        work, in_turn = self._least(False, repeats)
        expected = self.message.copy()
        self.message[...] = 0
        _, overlapped = self._least(True, repeats)
        if not np.array_equal(expected, self.message):
            raise ArithmeticError("overlapping changes the message")
        return StreamedTimes(work, in_turn, overlapped)

    def _least(self, overlaps: bool, repeats: int) -> tuple[StreamedWork, float]:
        """Return the work and the seconds of the fastest of some runs, after one that is not timed."""
        runs = [timed(partial(self.stream, overlaps), 1, untimed=0) for _ in range(1 + repeats)]
        work, times = min(runs[1:], key=lambda run: run[1].least)
        return work, times.least


def lines(cells: float, repeats: int) -> Iterator[str]:
    """Yield the lines of the table."""
    yield _TABLE.head
    for kind, domain in _KINDS:
        streamed = StreamedBucket(kind, domain, cells, shared_device())
        times = streamed.times(repeats)
        steps = [1e3 * times.work.seconds[step] for step in ("upload", "join", "download")]
        totals = 1e3 * times.in_turn, 1e3 * times.overlapped, times.gain
        yield _TABLE.line(kind, domain, streamed.bytes / 1e6, times.work.gpu_chunks, *steps, *totals)


def main() -> None:
    """Print the table."""
    parser = options(__file__, __doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--cells", type=float, default=1e9, help="joined cells of a bucket")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the cells")
    given = parser.parse_args()
    if gpu_problem() is not None:
        sys.exit(f"no GPU: {gpu_problem()}")
    report = Report(__file__, given)
    for line in lines(given.cells / (100 if given.quick else 1), 4):
        report(line)
    report.keep()


if __name__ == "__main__":
    main()
