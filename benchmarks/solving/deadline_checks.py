"""Find where a run does not check its deadline: the longest intervals between two checks, and what ran in them.

    python -m benchmarks.solving.deadline_checks [--least 0.3] [--most 8] solve FILE --timeout 5 ...

The arguments after the options are a ``dmcmc`` command, which is carried out in this process. Of several ranks
(``mpirun -n 2 python -m benchmarks.solving.deadline_checks ...``), each prints its own lines on stderr. An interval is
printed with its wall and processor seconds, its start after the first check, and the most frequent stacks that were
sampled in it, outermost call first, with their counts. Kernels that were compiled while the clock ran come first.
Intervals within the compilation ahead of a run are skipped, because the clock does not run then.
"""

import argparse
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from dmcmc.inference.runtime import deadline

SAMPLE_SECONDS = 0.02  # seconds between two samples of the stack
SHOWN_FRAMES = 7  # frames of a stack that are printed
_COMPILATION = "run.compilation"  # in the names of modules that compile kernels ahead of a run


@dataclass
class CheckInterval:
    """An interval without a check of the deadline.

    Attributes
    ----------
    start, processor_start : float
        Wall clock and processor time at its start, in seconds.
    wall, processor : float
        Its wall-clock and processor seconds.
    stacks : Counter of str
        The stacks that were sampled in it.
    """

    start: float
    processor_start: float
    wall: float = 0.0
    processor: float = 0.0
    stacks: Counter[str] = field(default_factory=Counter)


class CheckObserver:
    """Observe every check of the deadline, on any thread, and sample the stack of the main thread in between.

    Attributes
    ----------
    least : float
        Seconds of the shortest interval that is recorded.
    intervals : list of CheckInterval
        The recorded intervals.
    first : float or None
        Time of the first check.
    current : CheckInterval
        The current interval.
    compiled : list of str
        Kernels that were compiled while the clock ran.
    """

    def __init__(self, least: float) -> None:
        self.least, self.intervals = least, list[CheckInterval]()
        self.first: float | None = None
        self.current = CheckInterval(time.perf_counter(), time.process_time())
        self.main, self.compiled = threading.main_thread().ident, list[str]()

    def record_check(self) -> None:
        """End the current interval, and begin the next one."""
        last, self.current = self.current, CheckInterval(time.perf_counter(), time.process_time())
        self.first = self.first or self.current.start
        if self.current.start - last.start >= self.least:
            last.wall, last.processor = (
                self.current.start - last.start,
                self.current.processor_start - last.processor_start,
            )
            self.intervals.append(last)

    def register(self) -> None:
        """Record the kernels that are compiled, on any thread, while the clock runs."""
        from numba.core import event

        observer = self

        class _CompileListener(event.Listener):  # type: ignore[misc]
            def on_start(self, event: Any) -> None:
                where = frames_of(sys._current_frames().get(observer.main or 0), most=40)
                if observer.first is not None and _COMPILATION not in where:
                    observer.compiled.append(f"{event.data['dispatcher'].py_func.__name__} {event.data['args']}"[-500:])

            def on_end(self, event: Any) -> None:
                pass

        event.register("numba:compile", _CompileListener())

    def sample_stacks(self) -> None:
        """Sample the main thread's stack repeatedly, once the current interval is long enough."""
        while True:
            time.sleep(SAMPLE_SECONDS)
            interval = self.current
            if self.first is not None and time.perf_counter() - interval.start > self.least / 2:
                frame = sys._current_frames().get(self.main or 0)
                prefix = f"{_COMPILATION} > " if _COMPILATION in frames_of(frame, most=60) else ""
                interval.stacks[prefix + frames_of(frame)] += 1

    def report(self, most: int) -> None:
        """Print the longest intervals."""
        rank = os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        for text in self.compiled:
            print(f"rank {rank}: compiled while the clock ran: {text}", file=sys.stderr)
        shown = [one for one in self.intervals if not any(_COMPILATION in text for text in one.stacks)]
        for one in sorted(shown, key=lambda one: -one.wall)[:most]:
            at = one.start - (self.first or one.start)
            print(
                f"rank {rank}: {one.wall:.2f} s ({one.processor:.2f} of processor time) from {at:.2f} s on",
                file=sys.stderr,
            )
            for text, times in one.stacks.most_common(3):
                print(f"    {times:4d} x {text}", file=sys.stderr)


def frames_of(frame: FrameType | None, most: int = SHOWN_FRAMES) -> str:
    """Return the project's frames of a stack, the outermost first."""
    found = list[str]()
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("dmcmc."):
            found.append(f"{module.removeprefix('dmcmc.')}:{frame.f_code.co_name}:{frame.f_lineno}")
        elif module.startswith("numba.") and not found:
            found.append("numba")
        frame = frame.f_back
    return " > ".join(reversed(found[:most]))


def main() -> int:
    """Carry out a command, and print the longest intervals without a check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--least", type=float, default=0.3, help="seconds of the shortest interval that is recorded")
    parser.add_argument("--most", type=int, default=8, help="number of intervals to print")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a dmcmc command")
    given = parser.parse_args()
    observer = CheckObserver(given.least)

    def observed(read: Callable[[deadline.Deadline], Any]) -> Callable[[deadline.Deadline], Any]:
        """Return a way to read a deadline that also records the check."""

        def checked(deadline_object: deadline.Deadline) -> Any:
            if deadline_object.until < float("inf"):
                observer.record_check()
            return read(deadline_object)

        return checked

    kind = deadline.Deadline
    kind.left, kind.over = property(observed(kind.left.fget)), property(observed(kind.over.fget))  # type: ignore
    kind.check = observed(kind.check)  # type: ignore[assignment,method-assign]
    observer.register()
    threading.Thread(target=observer.sample_stacks, daemon=True).start()
    from dmcmc.cli.main import main as dmcmc

    try:
        return dmcmc(given.command)
    finally:
        observer.record_check()
        observer.report(given.most)


if __name__ == "__main__":
    sys.exit(main())
