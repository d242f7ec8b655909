"""How a command ends: its result is delivered once, its processes end, and a failure is one line.

Several threads may undertake the delivery of a result or of the best result so far; one of them does it. Signals are
passed on to the ranks of this machine. Exceptions and warnings become lines on standard error, and exceptions become
exit codes.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dmcmc.inference.runtime.errors import CheckpointWarning, DivisionWarning, DmcmcError, FileWarning
from dmcmc.mpi.compute_node import announced_rank, by_open_mpi

if TYPE_CHECKING:
    from dmcmc.mpi.world import World
    from dmcmc.solving.observe import RunHandle


PREPARED_VALID = 1.0
"""Seconds for which a prepared result is used without preparing it again."""


class Delivery(Enum):
    """The state of the single delivery of a result; it only moves forward."""

    OPEN = "no thread has undertaken to deliver a result"
    CLAIMED = "a thread has undertaken it, and is still computing the result"
    WRITING = "the result is being written and printed"
    DONE = "the result is printed, or there is none"


class ResultDelivery:
    """The single delivery of a result: the first thread that claims it delivers, and all others wait for it.

    Parameters
    ----------
    report
        Reports an error of the delivery, and returns the exit code.

    Attributes
    ----------
    write : callable or None
        Writes and prints a result, and returns the exit code; None before a run begins.
    clear_display : callable
        Removes the progress display from the terminal.
    code : int or None
        Exit code of the process; None until a result is delivered or the run has none.
    """

    def __init__(self, report: Callable[[Exception], int]) -> None:
        self._report = report
        self.write: Callable[[Any], int] | None = None
        self.clear_display: Callable[[], object] = _nothing
        self.code: int | None = None
        self._lock, self._state = threading.Lock(), Delivery.OPEN  # the lock protects the state
        self._delivered = threading.Event()  # set when the result is delivered

    @property
    def state(self) -> Delivery:
        """How far the delivery is."""
        return self._state

    def claim(self, rank: int) -> bool:
        """Return whether the caller is to deliver the result: the first caller, on rank 0."""
        with self._lock:
            is_first = self._state is Delivery.OPEN
            if is_first:
                self._state = Delivery.CLAIMED
        return is_first and rank == 0

    def before_writing(self, action: Callable[[], object]) -> None:
        """Do something unless a thread has begun to write the result, and let none begin until it is done."""
        with self._lock:
            if self._state in (Delivery.OPEN, Delivery.CLAIMED):
                action()

    def deliver(self, result: Any, note: str) -> int:
        """Deliver a result and return the exit code; an error in doing so is reported, and its code returned.

        Parameters
        ----------
        result
            The result.
        note
            The kind of the signal that was received, which a result of a run that has not ended gets as its note; empty
            without a signal.
        """
        import msgspec  # already imported by the result

        assert self.write is not None
        code = 1
        try:
            self.clear_display()
            if note and getattr(result, "status", "") == "timeout":
                result = msgspec.structs.replace(result, note=note)
            with self._lock:
                self._state = Delivery.WRITING
            code = self.write(result)
        except Exception as error:
            code = self._report(error)
        return self.done(code)

    def done(self, code: int) -> int:
        """Note that the delivery is over, and return the exit code of the process."""
        with self._lock:
            self.code, self._state = code, Delivery.DONE
        self._delivered.set()
        return code

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the delivery by another thread, and return its exit code; 1 if it is not known."""
        self._delivered.wait(seconds)
        return 1 if self.code is None else self.code


class BestResult:
    """The best result of a run so far, which may be prepared in advance.

    Parameters
    ----------
    run
        The run.
    """

    def __init__(self, run: "RunHandle") -> None:
        self._run = run
        self._prepared: Any = None
        self._prepared_at = 0.0  # time (``time.perf_counter``) of the preparation; 0 without a prepared result
        self._preparing = threading.Lock()  # held while a result is computed

    def get(self) -> Any:
        """Return the best result so far, None if there is none; a recently prepared one is used again."""
        with self._preparing:
            if time.perf_counter() - self._prepared_at < PREPARED_VALID:
                return self._prepared
            return self._run.result()

    def prepare(self) -> None:
        """Prepare the best result so far, since the process may be ended soon."""
        with self._preparing:
            if self._run.running:
                self._prepared = self._run.result()
                self._prepared_at = 0.0 if self._prepared is None else time.perf_counter()


def _nothing() -> None:
    """Do nothing: there is no progress display."""


_LATE_OTHERS = 600.0  # seconds after the deadline at which other ranks end by themselves if they cannot see rank 0
# Seconds for other ranks to save what only they know, and for the result to pass the launcher. Ranks that are about to
# be ended cannot report that they are done, and launchers do not report that they passed all output on.
_SAVE_AND_FORWARD = 0.3
PASSED_ON: dict[int, signal.Signals] = {}
"""Signals that a rank passes on to the other ranks of its machine, and the signals that they stand for."""
if hasattr(signal, "SIGUSR1"):  # not on Windows
    PASSED_ON = {signal.SIGUSR1: signal.SIGINT, signal.SIGUSR2: signal.SIGTERM}


class RunProcesses:
    """The processes of a run: this one, and the other MPI ranks.

    Attributes
    ----------
    world : World or None
        The MPI ranks; None before MPI starts.
    under_open_mpi : bool
        Whether Open MPI's launcher started this process; it leaves little time after a signal.
    """

    def __init__(self) -> None:
        self.world: World | None = None
        self.under_open_mpi = by_open_mpi(os.environ)

    @property
    def rank(self) -> int:
        """The MPI rank of this process; before MPI starts, the rank that the launcher announces."""
        return announced_rank(os.environ) if self.world is None else self.world.rank

    def forward(self, received: int) -> None:
        """Pass a signal on to the other ranks of this machine."""
        for neighbour in [] if self.world is None else self.world.local_processes:
            with contextlib.suppress(OSError):  # it has ended
                os.kill(neighbour, next(code for code, meant in PASSED_ON.items() if meant == received))

    def may_end(self, late: float) -> bool:
        """Return whether this rank may end although its run is late.

        Rank 0 and a process without MPI may end at once, all others when the first rank of their machine has ended.

        ``late`` is the number of seconds since the deadline. A rank that is the first one of its machine, or does not
        know the others, cannot see rank 0 and waits ``_LATE_OTHERS`` seconds.
        """
        if self.rank == 0 or self.world is None:
            return True
        if self.world.local_rank == 0 or not self.world.local_processes:
            return late > _LATE_OTHERS
        try:
            os.kill(self.world.local_processes[0], 0)
        except OSError:
            return True
        return False

    def abort_others(self, code: int, after_signal: bool) -> None:
        """End all other ranks by ``MPI_Abort``.

        Some launchers do not end them when one rank ends, or report the ranks that they end as failures. Open MPI's
        launcher ends them itself on one machine, and would print more after an abort.

        Parameters
        ----------
        code
            Exit code of the ranks.
        after_signal
            Whether a signal was received, after which Open MPI leaves no time.
        """
        world = self.world
        if world is None or world.size == 1:
            return
        if world.rank == 0 and not (self.under_open_mpi and after_signal):
            time.sleep(_SAVE_AND_FORWARD)
        if world.size > world.local_size or (world.rank == 0 and not self.under_open_mpi):
            _clean_up()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # suppress messages of MPI about the abort
            world.abort(code)


def exit_process(code: int) -> NoReturn:
    """End the process immediately, after removing unfinished files."""
    _clean_up()
    os._exit(code)


def _clean_up() -> None:
    """Remove unfinished files, and show the cursor of the terminal again."""
    write = sys.modules.get("dmcmc.inference.storage.checked_file")
    if write is not None:
        write.discard_partial_files()
    if os.isatty(2):
        os.write(2, b"\x1b[?25h")  # a progress bar hides the cursor


_PACKAGE = Path(__file__).resolve().parents[1]
_ROOTS = (_PACKAGE, *(p.resolve() for p in map(_PACKAGE.joinpath, ("inference", "samplers", "mpi"))))


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error: 2 for bad input, 130 for Ctrl-C, 1 for unexpected errors."""
    if isinstance(error, DmcmcError):
        return error.exit_code
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def describe(error: BaseException) -> str:
    """Return an error as one line: the message of a ``DmcmcError``; of others the type, the message and the place."""
    message = " ".join(str(error).split())
    if isinstance(error, DmcmcError):
        return f"error: {message}"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, MemoryError):
        return f"error: out of memory{_place(error)}; set a lower budget.memory or use a smaller problem"
    message = f": {message[:500]}" if message else ""
    return f"internal error: {type(error).__name__}{message}{_place(error)}; set DMCMC_DEBUG=1 to see the traceback"


def report(error: BaseException, rank: int | None = None) -> None:
    """Print an error as one line to standard error, with ``DMCMC_DEBUG=1`` after its traceback.

    Parameters
    ----------
    error
        The error.
    rank
        The MPI rank to name; None for none.
    """
    if os.environ.get("DMCMC_DEBUG") == "1":
        traceback.print_exception(error)
    where = "" if rank is None else f"rank {rank}: "
    print_line(f"dmcmc: {where}{describe(error)}")


def print_line(text: str) -> None:
    """Print a line to standard error, or nothing if standard error cannot be written."""
    with suppress(OSError):
        print(text.encode("utf-8", "replace").decode(), file=sys.stderr, flush=True)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print warnings of dmcmc as one line each, without the place in the code."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            if issubclass(category, DivisionWarning | CheckpointWarning | FileWarning):
                print(f"dmcmc: warning: {message}", file=sys.stderr, flush=True)
            else:
                others(message, category, *place, **options)

        warnings.showwarning = show
        yield


def _place(error: BaseException) -> str:
    """Return `` (file:line)`` of the innermost frame in the code of dmcmc; empty if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        for root in _ROOTS:
            if path.is_relative_to(root):
                prefix = "dmcmc" if root == _PACKAGE else f"dmcmc/{root.name}"
                return f" ({prefix}/{path.relative_to(root).as_posix()}:{frame.lineno})"
    return ""
