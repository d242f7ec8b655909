"""List the kernels that a command compiles, with the processor seconds of each and of each compiler pass.

    python -m benchmarks.compilation_time [--most 30] [--cold] run configs/meetings.yaml ...

The arguments after the options are a ``dmcmc`` command, which is carried out in this process. Of several ranks, each
prints its own lines on stderr. ``*`` marks kernels that were not compiled ahead (``dmcmc.run.compilation``); the last
lines name their callers. Seconds are processor seconds of the compiling thread, without those of the kernels that a
kernel calls. ``--cold`` begins with an empty cache in a temporary folder, which is deleted at the end.
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


class CompilerEvents:
    """Observe Numba's compiler: the kernels and the time of each pass.

    Attributes
    ----------
    seconds : dict of (str, str) to dict of str to float
        Processor seconds by compiler pass, for each kernel (name, argument types).
    not_ahead : dict of (str, str) to str
        The callers of each kernel that was not compiled ahead; empty if another kernel called it.
    open : list of (str, str)
        The kernels that are being compiled, the innermost last.
    passes : list of str
        The current compiler pass of each of them.
    last_time : float
        The thread's processor time at the last event.
    """

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.not_ahead: dict[tuple[str, str], str] = {}
        self.open: list[tuple[str, str]] = []
        self.passes: list[str] = []
        self.last_time = time.thread_time()

    def _add_time(self) -> None:
        """Add the time since the last event to the current kernel and pass."""
        now = time.thread_time()
        if self.open:
            self.seconds[self.open[-1]][self.passes[-1] if self.passes else "other"] += now - self.last_time
        self.last_time = now

    def listen(self) -> None:
        """Register for Numba's events."""
        from numba.core import event

        compiled = self

        class _KernelListener(event.Listener):  # type: ignore[misc]
            def on_start(self, event: Any) -> None:
                compiled._add_time()
                function = event.data["dispatcher"].py_func
                name = f"{function.__module__.removeprefix('dmcmc.')}.{function.__name__}"
                compiled.open.append((name, str(event.data["args"])))
                frames = list(chain.from_iterable(_stack(frame) for frame in sys._current_frames().values()))
                if not any(_is_ahead(frame) for frame in frames):
                    compiled.not_ahead[compiled.open[-1]] = _callers() if len(compiled.open) == 1 else ""
                compiled.passes.append("other")

            def on_end(self, event: Any) -> None:
                compiled._add_time()
                compiled.open.pop()
                compiled.passes.pop()

        class _PassListener(event.Listener):  # type: ignore[misc]
            def on_start(self, event: Any) -> None:
                compiled._add_time()
                compiled.passes.append(event.data["name"].split(" ")[0])

            def on_end(self, event: Any) -> None:
                compiled._add_time()
                compiled.passes.pop()

        event.register("numba:compile", _KernelListener())
        event.register("numba:run_pass", _PassListener())

    def report(self, most: int) -> None:
        """Print the compiled kernels, those that took longest first."""
        total = {key: sum(parts.values()) for key, parts in self.seconds.items()}
        by_pass: dict[str, float] = defaultdict(float)
        for parts in self.seconds.values():
            for name, seconds in parts.items():
                by_pass[name] += seconds
        print(f"{len(total)} kernels, {sum(total.values()):.1f} s of processor time", file=sys.stderr)
        for name, seconds in sorted(by_pass.items(), key=lambda one: -one[1])[:6]:
            print(f"  {seconds:6.2f} s {name}", file=sys.stderr)
        for key in sorted(total, key=lambda one: -total[one])[:most]:
            lowering = self.seconds[key].get("native_lowering", 0.0)
            name, types = key
            mark = "*" if key in self.not_ahead else " "
            print(f"{mark}{total[key]:6.2f} s ({lowering:.2f} lowering) {name} {types}", file=sys.stderr)
        for (name, _), callers in self.not_ahead.items():
            if callers:
                print(f"* {name} was called by {callers}", file=sys.stderr)


def _is_ahead(frame: FrameType) -> bool:
    """Return whether a function belongs to the compilation ahead of a run."""
    return str(frame.f_globals.get("__name__")).startswith("dmcmc.run.compilation.")


def _callers() -> str:
    """Return the nearest functions of the project on this thread's stack, the nearest first."""
    ours = [f for f in _stack(sys._getframe()) if "/dmcmc/" in f.f_code.co_filename]
    return ", ".join(f"{Path(f.f_code.co_filename).stem}.{f.f_code.co_name}" for f in ours[:6])


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and all of its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def main() -> int:
    """Carry out a command, and print the kernels that it compiled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=30, help="number of kernels to print")
    parser.add_argument("--cold", action="store_true", help="begin with an empty cache")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a dmcmc command")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.cold:
            os.environ["XDG_CACHE_HOME"] = folder
        compiled, wall, busy = CompilerEvents(), time.perf_counter(), time.process_time()
        compiled.listen()
        from dmcmc.cli.main import main as dmcmc

        try:
            return dmcmc(given.command)
        finally:
            took = f"{time.perf_counter() - wall:.1f} s, {time.process_time() - busy:.1f} s of processor time"
            print(took, file=sys.stderr)
            compiled.report(given.most)


if __name__ == "__main__":
    sys.exit(main())
