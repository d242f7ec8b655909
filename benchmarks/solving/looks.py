"""Where a run does not look at the clock: the longest stretches between two looks, and what was done in them.

    python -m benchmarks.solving.looks [--least 0.3] [--most 8] solve FILE --timeout 5 ...

What follows the options is a ``dmcmc`` command, which is carried out in this process; of several ranks
(``mpirun -n 2 python -m benchmarks.solving.looks ...``) each prints its own lines on stderr. A stretch is printed with
its wall and processor seconds, when it began after the first look, and the places in the code in which it was met,
outermost first, with how often; before them what was compiled while the clock ran. What warm-ups do counts as looked
at: no clock runs.
"""

import argparse
import os
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from dmcmc.inference.runtime import deadline

EVERY = 0.02  # seconds between two glances at what is done
SHOWN = 7  # places of a stack


@dataclass
class Stretch:
    """Time without a look; seconds are of the process's clock and of its processors."""

    start: float
    begun: float
    wall: float = 0.0
    busy: float = 0.0
    met: Counter[str] = field(default_factory=Counter)


class Looks:
    """Hears of every look, on any thread, and glances at the main thread between them."""

    def __init__(self, least: float) -> None:
        self.least, self.found = least, list[Stretch]()
        self.first: float | None = None
        self.now = Stretch(time.perf_counter(), time.process_time())
        self.main, self.compiled = threading.main_thread().ident, list[str]()

    def look(self) -> None:
        """Begin another stretch."""
        last, self.now = self.now, Stretch(time.perf_counter(), time.process_time())
        self.first = self.first or self.now.start
        if self.now.start - last.start >= self.least:
            last.wall, last.busy = self.now.start - last.start, self.now.begun - last.begun
            self.found.append(last)

    def listen(self) -> None:
        """Note what is compiled, on any thread, while the clock runs: warm-ups should have done so."""
        from numba.core import event

        looks = self

        class Compiling(event.Listener):  # type: ignore[misc]
            def on_start(self, event: Any) -> None:
                where = places(sys._current_frames().get(looks.main or 0), most=40)
                if looks.first is not None and "warm_up" not in where:
                    looks.compiled.append(f"{event.data['dispatcher'].py_func.__name__} {event.data['args']}"[-500:])

            def on_end(self, event: Any) -> None:
                pass

        event.register("numba:compile", Compiling())

    def glance(self) -> None:
        """Note what is done now, where nobody has looked for a while."""
        while True:
            time.sleep(EVERY)
            here = self.now
            if self.first is not None and time.perf_counter() - here.start > self.least / 2:
                frame = sys._current_frames().get(self.main or 0)
                warming = "warm_up > " if "warm_up" in places(frame, most=60) else ""
                here.met[warming + places(frame)] += 1

    def report(self, most: int) -> None:
        """Print the longest stretches."""
        rank = os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        for text in self.compiled:
            print(f"rank {rank}: compiled while the clock ran: {text}", file=sys.stderr)
        kept = [one for one in self.found if not any("warm_up" in text for text in one.met)]
        for one in sorted(kept, key=lambda one: -one.wall)[:most]:
            at = one.start - (self.first or one.start)
            print(f"rank {rank}: {one.wall:.2f} s ({one.busy:.2f} of processors) from {at:.2f} s on", file=sys.stderr)
            for text, times in one.met.most_common(3):
                print(f"    {times:4d} x {text}", file=sys.stderr)


def places(frame: FrameType | None, most: int = SHOWN) -> str:
    """Return the places of a stack that are ours."""
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
    """Carry out a command, and print where it did not look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--least", type=float, default=0.3, help="seconds of a stretch that is kept")
    parser.add_argument("--most", type=int, default=8, help="stretches that are printed")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a dmcmc command")
    given = parser.parse_args()
    looks, left = Looks(given.least), vars(deadline.Stop)["left"].fget

    def heard(stop: deadline.Stop) -> float:
        if stop.until < float("inf"):
            looks.look()
        return float(left(stop))

    deadline.Stop.left = property(heard)  # type: ignore[assignment,method-assign]
    looks.listen()
    threading.Thread(target=looks.glance, daemon=True).start()
    from dmcmc.cli.main import main as dmcmc

    try:
        return dmcmc(given.command)
    finally:
        looks.look()
        looks.report(given.most)


if __name__ == "__main__":
    sys.exit(main())
