"""Handle SIGINT and SIGTERM: deliver the best result so far within about a second; a second signal ends at once.

A separate thread receives the signals, because the main thread may be importing, compiling, running a kernel or waiting
for another rank. The thread asks the run to end; mostly the run then delivers its result itself. If that takes too
long, the thread delivers the best result so far and ends the process. If there is no result yet, one line says so.

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
from typing import TYPE_CHECKING, Any, NoReturn

from dmcmc.cli.ending import PASSED_ON, BestResult, Delivery, ResultDelivery, RunProcesses, exit_process
from dmcmc.mpi.compute_node import print_as_launcher

if TYPE_CHECKING:
    from dmcmc.solving.observe import RunHandle

_GRACE = 0.35  # seconds for the run to deliver its result itself; launchers end ranks about two seconds after a signal
_OPEN_MPI_GRACE = 0.05  # the same under Open MPI, which leaves a quarter of a second
_OTHER_RANKS_WAIT = 1.3  # seconds that other ranks wait for rank 0 to end them
_FORCED_END = 1.7  # seconds after the signal at which the process ends, unless a result is being written
_DUPLICATE = 0.25  # seconds; two signals within them count as one: `timeout` and some launchers send each twice
_WRITE_LIMIT = 5.0  # seconds that a second signal leaves for the output of a result: half a result helps nobody
_POLL_SECONDS = 0.05  # between two checks whether a run exceeds its time limit
_TRACE_DEPTH = 5  # frames of the place that DMCMC_DEBUG reports for a late run
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Signals:
    """The handling of signals in this process.

    The order of states: ``listen`` starts the handling; the MPI ranks become known to ``processes``; ``begin`` starts a
    run. The first signal sets ``received`` and asks the run to end. The first thread that finishes (the main thread by
    ``deliver``, or a helper thread by ``finish``) claims the delivery, for which all others wait. Then the process
    ends, never while a result is being written: one complete result is printed, or none. A process handles one run, so
    that no state is ever reset.

    Attributes
    ----------
    received : int
        Number of the signal that asked for the end; 0 before.
    delivery : ResultDelivery
        The single delivery of a result.
    processes : RunProcesses
        This process and the other MPI ranks.
    """

    def __init__(self) -> None:
        self.received: int = 0
        self.delivery, self.processes = ResultDelivery(_report), RunProcesses()
        self._listening = False  # whether this process handles signals
        self._run: RunHandle | None = None  # by which the run can be cancelled; None before ``begin``
        self._best: BestResult | None = None  # of that run

    def listen(self) -> None:
        """Handle signals from now on; only for a process that runs one command line."""
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "siginterrupt"):
            return  # without siginterrupt: Windows
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        threading.Thread(target=self._receive, args=(reader,), name="signals", daemon=True).start()
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (*_WORDS, *PASSED_ON, *([signal.SIGCONT] if self.processes.under_open_mpi else [])):
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
        return bool(self.received) or self.delivery.state is not Delivery.OPEN

    def begin(self, deliver: Callable[[Any], int]) -> "RunHandle | None":
        """Return the handle by which a run can be ended and its best result be read; None without signal handling.

        Parameters
        ----------
        deliver
            Writes and prints a result, and returns the exit code.
        """
        from dmcmc.solving.observe import RunHandle

        self.delivery.write, run = deliver, RunHandle()
        if self.received:
            run.cancellation.request()
        if not self._listening:
            return None
        self._run, self._best = run, BestResult(run)
        threading.Thread(target=self._watch_time_limit, args=(run,), name="clock", daemon=True).start()
        return run

    def deliver(self, result: Any) -> int:
        """Deliver the final result of a run, unless one was delivered already; return the exit code."""
        if not self._listening:
            assert self.delivery.write is not None
            return self.delivery.write(result)
        if self.delivery.claim(self.processes.rank):
            return self.delivery.deliver(result, _word_of(self.received))
        return self.delivery.wait()

    def finish(self) -> int:
        """Deliver the best result so far, or print that there is none; return the exit code.

        Without a result the code is 128 plus the number of the signal, as shells define it.
        """
        if not self.delivery.claim(self.processes.rank):
            return self.delivery.wait()
        best = None if self._best is None else self._best.get()
        if best is not None:
            return self.delivery.deliver(best, _word_of(self.received))
        self.delivery.clear_display()
        _print_line(_word_of(self.received), "" if self.delivery.write is None else "there is no result yet")
        return self.delivery.done(128 + self.received)

    def leave(self, code: int) -> None:
        """End the process after a signal without waiting for other threads; rank 0 ends first."""
        if not self.received:
            return
        self.delivery.code = code
        if self.processes.rank != 0:  # MPI_Finalize could wait for ever without receiving signals; rank 0 ends all
            time.sleep(_OTHER_RANKS_WAIT)
        self.processes.abort_others(code, after_signal=True)
        exit_process(code)

    def _receive(self, reader: int) -> None:
        """Wait for signals in a thread; ``reader`` is the pipe to which Python writes the number of each signal.

        The first SIGINT or SIGTERM starts the end of the run. The process ends after a second one, or after a time.
        """
        while (first := signal.Signals(os.read(reader, 1)[0])) == signal.SIGCONT:
            if self._best is not None and self.processes.rank == 0:
                threading.Thread(target=self._best.prepare, name="prepare", daemon=True).start()
        received_at, self.received = time.perf_counter(), PASSED_ON.get(first, first)
        if self.processes.under_open_mpi and self.processes.rank == 0:
            # never in the middle of a result: its parts would go to two places
            self.delivery.before_writing(lambda: print_as_launcher(os.getpid()))
        threading.Thread(target=self._end, args=(first,), name="end", daemon=True).start()
        # On a busy machine this thread may run late, so the time of duplicates starts only now.
        duplicates_end = time.perf_counter() + _DUPLICATE
        while self._second_signal(reader, duplicates_end) is not None:
            pass
        second = self._second_signal(reader, received_at + _FORCED_END)
        while second is None and self.delivery.state is Delivery.WRITING:
            second = self._second_signal(reader, time.perf_counter() + _POLL_SECONDS)
        code = self.delivery.code
        self._end_now(128 + second if second is not None else 128 + self.received if code is None else code)

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
        if self._run is not None:
            self._run.cancellation.request()
        if first in _WORDS:
            self.processes.forward(self.received)
        _save_partial(self._run)
        if self.processes.rank == 0:
            if self._run is not None and self._run.running:
                self.delivery.wait(_OPEN_MPI_GRACE if self.processes.under_open_mpi else _GRACE)
            code = self.finish()
        elif self.processes.world is None:  # MPI may be starting: then no thread could run
            code = 128 + self.received
        else:
            time.sleep(_OTHER_RANKS_WAIT)
            _print_line(_word_of(self.received), f"rank {self.processes.rank}")
            code = 128 + self.received
        self.processes.abort_others(code, after_signal=True)
        exit_process(code)

    def _watch_time_limit(self, run: "RunHandle") -> None:
        """Deliver the best result so far if a run exceeds its time limit, without waiting for its work on any rank."""
        saved = False
        while (now := time.perf_counter()) < run.due or not self.processes.may_end(now - run.due):
            if now >= run.due and not saved:  # other ranks: rank 0 ends them soon
                saved = True
                _save_partial(run)
            time.sleep(_POLL_SECONDS)
        if self.received:
            return
        if self.processes.rank == 0:
            best, main_thread_place = run.result(), _main_thread_place()
            if best is None or not self.delivery.claim(0):
                return
            if "DMCMC_DEBUG" in os.environ:
                os.write(2, f"dmcmc: time limit exceeded in {main_thread_place}\n".encode())
            self.delivery.deliver(best, _word_of(self.received))
            _save_partial(run)
        self.processes.abort_others(0, after_signal=bool(self.received))
        exit_process(self.delivery.code or 0)

    def _end_now(self, code: int) -> NoReturn:
        """End the process, after some seconds for a result that is being written.

        A result that is claimed but not begun is given up: from then on no thread begins to write.
        """
        self.delivery.before_writing(lambda: exit_process(code))
        self.delivery.wait(_WRITE_LIMIT)
        exit_process(code)


def _report(error: Exception) -> int:
    """Report an error of the delivery, and return its exit code."""
    from dmcmc.cli.ending import exit_code, report

    report(error)
    return exit_code(error)


def _word_of(received: int) -> str:
    """Return the kind of the signal that was received; empty if there was none."""
    return _WORDS[signal.Signals(received)] if received else ""


def _save_partial(run: "RunHandle | None") -> None:
    """Save the data of a run that only this rank has."""
    if run is not None and run.save_partial is not None:
        run.save_partial()


def _print_line(kind: str, text: str) -> None:
    """Print one line with the kind of signal and a text to standard error."""
    os.write(2, f"dmcmc: {kind}{text and ': '}{text}\n".encode())


def _main_thread_place() -> str:
    """Return the functions of dmcmc that the main thread is in, the innermost last."""
    functions, frame = list[str](), sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and len(functions) < _TRACE_DEPTH:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("dmcmc."):
            functions.append(f"{module.removeprefix('dmcmc.')}.{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " > ".join(reversed(functions))


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the wake-up descriptor passes the signal to the receiving thread."""


SIGNALS = Signals()
