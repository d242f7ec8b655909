"""What a command compiles: every kernel with its processor seconds, and what they are spent on.

    python -m benchmarks.compiling [--most 30] [--cold] run configs/meetings.yaml ...

What follows the options is a ``dmcmc`` command, which is carried out in this process; of several ranks each prints its
own lines on stderr; ``*`` marks what no warm-up has compiled before, and at the end says who asked for it. Seconds are
those of the compiling thread's processor, without those of the kernels that a kernel calls. ``--cold`` begins with an
empty cache in a folder of its own, which is deleted at the end.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any


class Compiled:
    """Hears what Numba compiles, and in which passes."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.unforeseen: dict[tuple[str, str], str] = {}
        self.open: list[tuple[str, str]] = []
        self.passes: list[str] = []
        self.last = time.thread_time()

    def _spent(self) -> None:
        now = time.thread_time()
        if self.open:
            self.seconds[self.open[-1]][self.passes[-1] if self.passes else "other"] += now - self.last
        self.last = now

    def listen(self) -> None:
        """Begin."""
        from numba.core import event

        compiled = self

        class Kernels(event.Listener):  # type: ignore[misc]
            def on_start(self, event: Any) -> None:
                compiled._spent()
                function = event.data["dispatcher"].py_func
                name = f"{function.__module__.removeprefix('dmcmc.')}.{function.__name__}"
                compiled.open.append((name, str(event.data["args"])))
                frames = list(chain.from_iterable(_stack(frame) for frame in sys._current_frames().values()))
                if not any(frame.f_code.co_name.startswith("warm_up") for frame in frames):
                    compiled.unforeseen[compiled.open[-1]] = _callers() if len(compiled.open) == 1 else ""
                compiled.passes.append("other")

            def on_end(self, event: Any) -> None:
                compiled._spent()
                compiled.open.pop()
                compiled.passes.pop()

        class Passes(event.Listener):  # type: ignore[misc]
            def on_start(self, event: Any) -> None:
                compiled._spent()
                compiled.passes.append(event.data["name"].split(" ")[0])

            def on_end(self, event: Any) -> None:
                compiled._spent()
                compiled.passes.pop()

        event.register("numba:compile", Kernels())
        event.register("numba:run_pass", Passes())

    def report(self, most: int) -> None:
        """Print what was compiled, the dearest first."""
        total = {key: sum(parts.values()) for key, parts in self.seconds.items()}
        by_pass: dict[str, float] = defaultdict(float)
        for parts in self.seconds.values():
            for name, seconds in parts.items():
                by_pass[name] += seconds
        print(f"{len(total)} kernels, {sum(total.values()):.1f} s of processors", file=sys.stderr)
        for name, seconds in sorted(by_pass.items(), key=lambda one: -one[1])[:6]:
            print(f"  {seconds:6.2f} s {name}", file=sys.stderr)
        for key in sorted(total, key=lambda one: -total[one])[:most]:
            back = self.seconds[key].get("native_lowering", 0.0)
            name, types = key
            mark = "*" if key in self.unforeseen else " "
            print(f"{mark}{total[key]:6.2f} s ({back:.2f} lowering) {name} {types}", file=sys.stderr)
        for (name, _), callers in self.unforeseen.items():
            if callers:
                print(f"* {name} was asked for by {callers}", file=sys.stderr)


def _callers() -> str:
    """Return the nearest of our functions that are at work on this thread, the nearest first."""
    ours = [f for f in _stack(sys._getframe()) if "/dmcmc/" in f.f_code.co_filename]
    return ", ".join(f"{Path(f.f_code.co_filename).stem}.{f.f_code.co_name}" for f in ours[:6])


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def main() -> int:
    """Carry out a command, and print what it compiled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=30, help="kernels that are printed")
    parser.add_argument("--cold", action="store_true", help="begin with an empty cache")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a dmcmc command")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.cold:
            os.environ["XDG_CACHE_HOME"] = folder
        compiled, wall, busy = Compiled(), time.perf_counter(), time.process_time()
        compiled.listen()
        from dmcmc.cli.main import main as dmcmc

        try:
            return dmcmc(given.command)
        finally:
            took = f"{time.perf_counter() - wall:.1f} s, {time.process_time() - busy:.1f} s of processors"
            print(took, file=sys.stderr)
            compiled.report(given.most)


if __name__ == "__main__":
    sys.exit(main())
