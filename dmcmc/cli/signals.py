"""Handle SIGINT and SIGTERM: deliver the best result so far within about a second; a second signal ends at once.

A separate thread receives the signals, because the main thread may be importing, compiling, running a kernel or
waiting for another rank. The thread asks the run to end; mostly the run then delivers its result itself. If that takes
too long, the thread delivers the best result so far and ends the process. If there is no result yet, one line says so.

A run that exceeds its time limit by some time is ended in the same way, since some work cannot be interrupted.

Rank 0 delivers the result, and the launcher ends the other ranks when rank 0 has ended. A signal to one rank only is
passed on to the ranks of its machine. On other machines it is noticed when the ranks next communicate, or they are all
ended together.

Open MPI's launcher leaves little time and discards output from then on. It sends SIGCONT first, at which rank 0
prepares the best result so far; the output is then written directly to the launcher's standard output.
"""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from dmcmc.mpi.launcher import announced_rank, by_open_mpi, print_as_launcher

if TYPE_CHECKING:
    from dmcmc.mpi.world import World
    from dmcmc.run.monitoring.interrupt import RunHandle

_GRACE = 0.35  # seconds for the run to deliver its result itself; launchers end ranks about two seconds after a signal
_OPEN_MPI_GRACE = 0.05  # the same under Open MPI, which leaves a quarter of a second
_PREPARED_VALID = 1.0  # seconds for which a prepared result is used without preparing it again
_OTHER_RANKS_WAIT = 1.3  # seconds that other ranks wait for rank 0 to end them
_FORCED_END = 1.7  # seconds after the signal at which the process ends, unless a result is being written
_DUPLICATE = 0.25  # seconds; two signals within them count as one: `timeout` and some launchers send each twice
_WRITE_LIMIT = 5.0  # seconds that a second signal leaves for the output of a result: half a result helps nobody
_LATE_OTHERS = 600.0  # seconds after the deadline at which other ranks end by themselves if they cannot see rank 0
# Seconds for other ranks to save what only they know, and for the result to pass the launcher. Ranks that are about to
# be ended cannot report that they are done, and launchers do not report that they passed all output on.
_SAVE_AND_FORWARD = 0.3
_POLL_SECONDS = 0.05  # between two checks whether a run exceeds its time limit
_TRACE_DEPTH = 5  # frames of the place that DMCMC_DEBUG reports for a late run
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_PASSED_ON: dict[int, signal.Signals] = {}  # signals that a rank passes on to the other ranks of its machine
if hasattr(signal, "SIGUSR1"):  # not on Windows
    _PASSED_ON = {signal.SIGUSR1: signal.SIGINT, signal.SIGUSR2: signal.SIGTERM}


class Delivery(Enum):
    """The state of the single delivery of a result; it only moves forward."""

    OPEN = "no thread has undertaken to deliver a result"
    CLAIMED = "a thread has undertaken it, and is still computing the result"
    WRITING = "the result is being written and printed"
    DONE = "the result is printed, or there is none"


class Signals:
    """The state of signal handling in this process, and the single delivery of a result.

    The order of states: ``listen`` starts the handling; ``set_world`` makes the MPI ranks known; ``begin`` starts a
    run. The first signal sets ``received`` and asks the run to end. The first thread that finishes (the main thread by
    ``deliver``, or a helper thread by ``finish``) claims the delivery; it delivers the result, sets ``_code`` and then
    ``_delivered``, for which all others wait. Then the process ends, never while a result is being written: one
    complete result is printed, or none. A process handles one run, so that no state is ever reset.

    Attributes
    ----------
    received : int
        Number of the signal that asked for the end; 0 before.
    clear_display : callable
        Removes the progress display from the terminal.
    _listening : bool
        Whether this process handles signals.
    _ending : RunHandle or None
        Handle by which the run can be cancelled and its best result so far be read; None before ``begin``.
    _deliver : callable or None
        Writes and prints a result, and returns the exit code; None before ``begin``.
    _world : World or None
        The MPI ranks; None before MPI starts.
    _lock, _state : Lock, Delivery
        The state of the delivery; only the first thread that claims it may deliver. The lock protects the state.
    _delivered : Event
        Set when the result is delivered.
    _code : int or None
        Exit code of the process; None until a result is delivered or the run has none.
    _under_open_mpi : bool
        Whether Open MPI's launcher started this process; it leaves little time after a signal.
    _prepared, _prepared_at : result, float
        The best result prepared in advance (None without one), and the time (``time.perf_counter``) at which it was
        prepared; 0 without one.
    _preparing : Lock
        Held while the best result so far is computed.
    """

    def __init__(self) -> None:
        self.received: int = 0
        self.clear_display: Callable[[], object] = _nothing
        self._listening = False
        self._ending: RunHandle | None = None
        self._deliver: Callable[[Any], int] | None = None
        self._world: World | None = None
        self._lock, self._state = threading.Lock(), Delivery.OPEN
        self._delivered = threading.Event()
        self._code: int | None = None
        self._under_open_mpi = by_open_mpi(os.environ)
        self._prepared: Any = None
        self._prepared_at = 0.0
        self._preparing = threading.Lock()

    def listen(self) -> None:
        """Handle signals from now on; only for a process that runs one command line."""
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "siginterrupt"):
            return  # without siginterrupt: Windows
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        threading.Thread(target=self._receive, args=(reader,), name="signals", daemon=True).start()
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (*_WORDS, *_PASSED_ON, *([signal.SIGCONT] if self._under_open_mpi else [])):
            signal.signal(number, _ignore)
            signal.siginterrupt(number, False)
        self._listening = True

    @contextlib.contextmanager
    def default_handling(self) -> Iterator[None]:
        """Let signals end the process as by default, while MPI starts: no other thread can run then."""
        before = {number: signal.signal(number, signal.SIG_DFL) for number in _WORDS} if self._listening else {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def is_ending(self) -> bool:
        """Whether a signal asked for the end, or a result is delivered: then an error of the run no longer matters."""
        return bool(self.received) or self._state is not Delivery.OPEN

    def set_world(self, world: "World") -> None:
        """Set the MPI ranks of this process."""
        self._world = world

    def begin(self, deliver: Callable[[Any], int]) -> "RunHandle | None":
        """Return the handle by which a run can be ended and its best result be read; None without signal handling.

        Parameters
        ----------
        deliver
            Writes and prints a result, and returns the exit code.
        """
        from dmcmc.run.monitoring.interrupt import RunHandle

        self._deliver, ending = deliver, RunHandle()
        if self.received:
            ending.cancellation.request()
        self._ending = ending if self._listening else None
        if self._listening:
            threading.Thread(target=self._watch_time_limit, args=(ending,), name="clock", daemon=True).start()
        return self._ending

    def deliver(self, result: Any) -> int:
        """Deliver the final result of a run, unless one was delivered already; return the exit code."""
        assert self._deliver is not None
        if not self._listening:
            return self._deliver(result)
        return self._deliver_once(result) if self._claim_delivery() else self._wait_for_delivery()

    def finish(self) -> int:
        """Deliver the best result so far, or print that there is none; return the exit code.

        Without a result the code is 128 plus the number of the signal, as shells define it.
        """
        if not self._claim_delivery():
            return self._wait_for_delivery()
        best = self._best()
        if best is not None:
            return self._deliver_once(best)
        self.clear_display()
        self._print_line("" if self._deliver is None else "there is no result yet")
        return self._done(128 + self.received)

    def _best(self) -> Any:
        """Return the best result so far, None if there is none; a recently prepared one is used again."""
        with self._preparing:
            if self._ending is None or time.perf_counter() - self._prepared_at < _PREPARED_VALID:
                return self._prepared
            return self._ending.result()

    def _prepare(self) -> None:
        """Prepare the best result so far, since the process may be ended soon."""
        with self._preparing:
            if self._rank == 0 and self._ending is not None and self._ending.running:
                self._prepared = self._ending.result()
                self._prepared_at = 0.0 if self._prepared is None else time.perf_counter()

    def leave(self, code: int) -> None:
        """End the process after a signal without waiting for other threads; rank 0 ends first."""
        if not self.received:
            return
        self._code = code
        if self._rank != 0:  # MPI_Finalize could wait for ever without receiving signals; rank 0 ends all ranks
            time.sleep(_OTHER_RANKS_WAIT)
        self._abort_others(code)
        _exit(code)

    def _receive(self, reader: int) -> None:
        """Wait for signals in a thread; ``reader`` is the pipe to which Python writes the number of each signal.

        The first SIGINT or SIGTERM starts the end of the run. The process ends after a second one, or after a time.
        """
        while (first := signal.Signals(os.read(reader, 1)[0])) == signal.SIGCONT:
            threading.Thread(target=self._prepare, name="prepare", daemon=True).start()
        received_at, self.received = time.perf_counter(), _PASSED_ON.get(first, first)
        if self._under_open_mpi and self._rank == 0:
            with self._lock:  # never in the middle of a result: its parts would go to two places
                if self._state in (Delivery.OPEN, Delivery.CLAIMED):
                    print_as_launcher(os.getpid())
        threading.Thread(target=self._end, args=(first,), name="end", daemon=True).start()
        # On a busy machine this thread may run late, so the time of duplicates starts only now.
        duplicates_end = time.perf_counter() + _DUPLICATE
        while self._second_signal(reader, duplicates_end) is not None:
            pass
        second = self._second_signal(reader, received_at + _FORCED_END)
        while second is None and self._state is Delivery.WRITING:
            second = self._second_signal(reader, time.perf_counter() + _POLL_SECONDS)
        self._end_now(128 + second if second is not None else 128 + self.received if self._code is None else self._code)

    def _second_signal(self, reader: int, until: float) -> int | None:
        """Return the number of the next SIGINT or SIGTERM before a time; None if there is none."""
        while (remaining_seconds := until - time.perf_counter()) > 0:
            if select.select([reader], [], [], remaining_seconds)[0]:
                number = signal.Signals(os.read(reader, 1)[0])
                if number in _WORDS:
                    return int(number)
        return None

    def _end(self, first: signal.Signals) -> None:
        """End the run: deliver its result on rank 0, and end the process.

        ``first`` is the signal that was received: SIGINT or SIGTERM from outside, which is passed on to the ranks of
        this machine, or SIGUSR1 or SIGUSR2 from a rank that passed it on.
        """
        if self._ending is not None:
            self._ending.cancellation.request()
        if first in _WORDS:
            self._forward()
        self._save_partial()
        if self._rank == 0:
            if self._ending is not None and self._ending.running:
                self._delivered.wait(_OPEN_MPI_GRACE if self._under_open_mpi else _GRACE)
            code = self.finish()
        elif self._world is None:  # MPI may be starting: then no thread could run
            code = 128 + self.received
        else:
            time.sleep(_OTHER_RANKS_WAIT)
            self._print_line(f"rank {self._rank}")
            code = 128 + self.received
        self._abort_others(code)
        _exit(code)

    def _watch_time_limit(self, ending: "RunHandle") -> None:
        """Deliver the best result so far if a run exceeds its time limit, without waiting for its work on any rank."""
        from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT

        compiled, saved = 0.0, False
        while (now := time.perf_counter()) < max(ending.due, compiled) or not self._may_end(now - ending.due):
            if MEMORY_ACCOUNT.is_compiling:  # let it finish: otherwise every run would compile this kernel again
                compiled = now + _GRACE
            if now >= ending.due and not saved:  # other ranks: rank 0 ends them soon
                saved = True
                self._save_partial()
            time.sleep(_POLL_SECONDS)
        if self.received:
            return
        if self._rank == 0:
            best, main_thread_place = ending.result(), _main_thread_place()
            if best is None or not self._claim_delivery():
                return
            if "DMCMC_DEBUG" in os.environ:
                os.write(2, f"dmcmc: time limit exceeded in {main_thread_place}\n".encode())
            self._deliver_once(best)
            self._save_partial()
        self._abort_others(0)
        _exit(self._code or 0)

    def _save_partial(self) -> None:
        """Save the data that only this rank has."""
        if self._ending is not None and self._ending.save_partial is not None:
            self._ending.save_partial()

    def _may_end(self, late: float) -> bool:
        """Return whether this rank may end although its run is late.

        Rank 0 and a process without MPI may end at once, all others when the first rank of their machine has ended.

        ``late`` is the number of seconds since the deadline. A rank that is the first one of its machine, or does not
        know the others, cannot see rank 0 and waits ``_LATE_OTHERS`` seconds.
        """
        if self._rank == 0 or self._world is None:
            return True
        if self._world.local_rank == 0 or not self._world.local_processes:
            return late > _LATE_OTHERS
        try:
            os.kill(self._world.local_processes[0], 0)
        except OSError:
            return True
        return False

    @property
    def _rank(self) -> int:
        """The MPI rank of this process; before MPI starts, the rank that the launcher announces."""
        return announced_rank(os.environ) if self._world is None else self._world.rank

    def _claim_delivery(self) -> bool:
        """Return whether the caller is to deliver the result: the first caller, on rank 0."""
        with self._lock:
            is_first = self._state is Delivery.OPEN
            if is_first:
                self._state = Delivery.CLAIMED
        return is_first and self._rank == 0

    def _deliver_once(self, result: Any) -> int:
        """Deliver a result and return the exit code; an error in doing so is reported, and its code returned."""
        import msgspec  # already imported by the result

        from dmcmc.cli.failure import exit_code, report

        assert self._deliver is not None
        code = 1
        try:
            self.clear_display()
            if self.received and getattr(result, "status", "") == "timeout":
                result = msgspec.structs.replace(result, note=_WORDS[signal.Signals(self.received)])
            with self._lock:
                self._state = Delivery.WRITING
            code = self._deliver(result)
        except Exception as error:
            report(error)
            code = exit_code(error)
        return self._done(code)

    def _done(self, code: int) -> int:
        """Note that the delivery is over, and return the exit code of the process."""
        with self._lock:
            self._code, self._state = code, Delivery.DONE
        self._delivered.set()
        return code

    def _wait_for_delivery(self) -> int:
        """Wait for the delivery by another thread and return its exit code; 1 if it is not known."""
        self._delivered.wait()
        return 1 if self._code is None else self._code

    def _print_line(self, text: str) -> None:
        """Print one line with the kind of signal and a text to standard error."""
        line = f"dmcmc: {_WORDS[signal.Signals(self.received)]}{text and ': '}{text}\n"
        os.write(2, line.encode())

    def _forward(self) -> None:
        """Pass the signal on to the other ranks of this machine."""
        for neighbour in [] if self._world is None else self._world.local_processes:
            with contextlib.suppress(OSError):  # it has ended
                os.kill(neighbour, next(code for code, meant in _PASSED_ON.items() if meant == self.received))

    def _abort_others(self, code: int) -> None:
        """End all other ranks by ``MPI_Abort``.

        Some launchers do not end them when one rank ends, or report the ranks that they end as failures. Open MPI's
        launcher ends them itself on one machine, and would print more after an abort.
        """
        world = self._world
        if world is None or world.size == 1:
            return
        if world.rank == 0 and not (self._under_open_mpi and self.received):  # after a signal Open MPI leaves no time
            time.sleep(_SAVE_AND_FORWARD)
        if world.size > world.local_size or (world.rank == 0 and not self._under_open_mpi):
            _clean_up()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # suppress messages of MPI about the abort
            world.abort(code)

    def _end_now(self, code: int) -> NoReturn:
        """End the process, after some seconds for a result that is being written.

        A result that is claimed but not begun is given up: from then on no thread begins to write.
        """
        with self._lock:
            is_writing = self._state is Delivery.WRITING
            if not is_writing:
                _exit(code)
        if is_writing:
            self._delivered.wait(_WRITE_LIMIT)
        _exit(code)


def _exit(code: int) -> NoReturn:
    """End the process immediately, after removing unfinished files."""
    _clean_up()
    os._exit(code)


def _clean_up() -> None:
    """Remove unfinished files, and show the cursor of the terminal again."""
    write = sys.modules.get("dmcmc.inference.storage.atomic_write")
    if write is not None:
        write.discard_partial_files()
    if os.isatty(2):
        os.write(2, b"\x1b[?25h")  # a progress bar hides the cursor


def _main_thread_place() -> str:
    """Return the functions of dmcmc that the main thread is in, the innermost last."""
    functions, frame = list[str](), sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and len(functions) < _TRACE_DEPTH:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("dmcmc."):
            functions.append(f"{module.removeprefix('dmcmc.')}.{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " > ".join(reversed(functions))


def _nothing() -> None:
    """Do nothing: there is no progress display."""


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the wake-up descriptor passes the signal to the receiving thread."""


SIGNALS = Signals()
