"""SIGINT and SIGTERM on the command line: the best so far within about a second; a second signal ends at once.

A thread of its own hears them, as the main one may be anywhere: importing, in a compiler, in a kernel, waiting for
another rank. It asks the run to end, which then mostly delivers its answer itself. Where that takes too long, the
thread delivers the best so far, and ends the process where it stands; where there is nothing yet, one line says so.

A run whose time budget is over for some while is treated alike: some work does not hear of the end.

Rank 0 delivers, and the launcher ends the others when it is gone. A rank that is told alone tells those of its machine;
elsewhere it is heard when the ranks next agree, or all are ended with it.

Open MPI's launcher leaves little time, and passes on nothing that is printed then: its SIGCONT, which comes first, lets
rank 0 prepare the best so far, and what follows is printed where the launcher prints.
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

from dmcmc.mpi.launcher import announced_rank, by_open_mpi, print_as_launcher

if TYPE_CHECKING:
    from dmcmc.mpi.world import World
    from dmcmc.run.monitoring.interrupt import Ending

_GRACE = 0.35  # seconds in which a run delivers its answer itself: launchers that pass a signal on leave two in all
_OPEN_MPI_GRACE = 0.05  # likewise, of the quarter of a second that Open MPI leaves
_FRESH = 1.0  # seconds that a prepared answer is as good as a new one
_OTHERS = 1.3  # likewise, on ranks that wait for rank 0 to end them
_LAST = 1.7  # then the process ends, whatever it does
_SAME = 0.25  # seconds between two that count as one: `timeout` and some launchers send each twice
_BEHIND = 600.0  # seconds after rank 0 that others end by themselves where they cannot see it: mostly it has ended them
# Seconds for other ranks to leave what they alone know, and for an answer to pass the launcher: ranks that are about to
# be ended cannot say that they are done, and no launcher says when it has passed everything on.
_LEAVING = 0.3
_GLANCE = 0.05  # seconds between two looks at a run's end
_PLACES = 5
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_PASSED_ON: dict[int, signal.Signals] = {}  # from a rank of the same machine
if hasattr(signal, "SIGUSR1"):  # not on Windows
    _PASSED_ON = {signal.SIGUSR1: signal.SIGINT, signal.SIGUSR2: signal.SIGTERM}


class Signals:
    """What has been heard, and the one answer that is given to it.

    Attributes
    ----------
    told : int
        The signal that asked for the end; 0 before.
    tidy : callable
        Takes what shows the progress from the terminal.
    """

    def __init__(self) -> None:
        self.told: int = 0
        self.tidy: Callable[[], object] = _nothing
        self._listening = False
        self._ending: Ending | None = None
        self._deliver: Callable[[Any], int] | None = None
        self._world: World | None = None
        self._claim, self._claimed = threading.Lock(), False
        self._delivered = threading.Event()
        self._code: int | None = None
        self._hurried = by_open_mpi(os.environ)
        self._prepared: Any = None
        self._prepared_at = 0.0
        self._preparing = threading.Lock()

    def listen(self) -> None:
        """Hear signals from now on; for a process that is a command line's own."""
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "siginterrupt"):
            return  # on Windows
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        threading.Thread(target=self._hear, args=(reader,), name="signals", daemon=True).start()
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (*_WORDS, *_PASSED_ON, *([signal.SIGCONT] if self._hurried else [])):
            signal.signal(number, _noted)
            signal.siginterrupt(number, False)
        self._listening = True

    @contextlib.contextmanager
    def unheard(self) -> Iterator[None]:
        """Let signals end the process by default: MPI starts without letting other threads run."""
        before = {number: signal.signal(number, signal.SIG_DFL) for number in _WORDS} if self._listening else {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def join(self, world: "World") -> None:
        """Know the ranks from now on."""
        self._world = world

    def begin(self, deliver: Callable[[Any], int]) -> "Ending | None":
        """Return what a run is to look at, and leave its best so far with; None where nobody listens.

        Parameters
        ----------
        deliver
            Writes and prints a result; returns the exit code.
        """
        from dmcmc.run.monitoring.interrupt import Ending

        self._deliver, ending = deliver, Ending()
        if self.told:
            ending.wish.ask()
        self._ending = ending if self._listening else None
        if self._listening:
            threading.Thread(target=self._watch, args=(ending,), name="clock", daemon=True).start()
        return self._ending

    def deliver(self, result: Any) -> int:
        """Deliver a run's own result, if nobody has delivered one yet; return the exit code."""
        assert self._deliver is not None
        if not self._listening:
            return self._deliver(result)
        return self._once(result) if self._claims() else self._waited()

    def finish(self) -> int:
        """Deliver the best so far, or say that there is none; return the exit code."""
        if not self._claims():
            return self._waited()
        best = self._best()
        if best is not None:
            return self._once(best)
        self.tidy()
        self._say("" if self._deliver is None else "there is no answer yet")
        self._code = 128 + self.told
        self._delivered.set()
        return self._code

    def _best(self) -> Any:
        """Return the best so far as a result; what has just been prepared is that."""
        with self._preparing:
            if self._ending is None or time.perf_counter() - self._prepared_at < _FRESH:
                return self._prepared
            return self._ending.best()

    def _prepare(self) -> None:
        """Have the best so far at hand: the end may be near."""
        with self._preparing:
            if self._rank == 0 and self._ending is not None and self._ending.running:
                self._prepared = self._ending.best()
                self._prepared_at = 0.0 if self._prepared is None else time.perf_counter()

    def leave(self, code: int) -> None:
        """End a process that has been told to, however much still works in it; rank 0 first."""
        if not self.told:
            return
        self._code = code
        if self._rank != 0:  # MPI_Finalize could wait for ever, and nothing would be heard: rank 0 ends all
            time.sleep(_OTHERS)
        self._give_up_others(code)
        _exit(code)

    def _hear(self, reader: int) -> None:
        """Wait for signals: the first starts the end, and if that takes too long, ends the process; so does another."""
        while (first := signal.Signals(os.read(reader, 1)[0])) == signal.SIGCONT:
            threading.Thread(target=self._prepare, name="prepare", daemon=True).start()
        told, self.told = time.perf_counter(), _PASSED_ON.get(first, first)
        if self._hurried and self._rank == 0:
            print_as_launcher(os.getpid())
        threading.Thread(target=self._end, args=(first,), name="end", daemon=True).start()
        while (left := told + _LAST - time.perf_counter()) > 0:
            if select.select([reader], [], [], left)[0]:
                number = signal.Signals(os.read(reader, 1)[0])
                if number in _WORDS and time.perf_counter() - told > _SAME:
                    self._end_now(128 + number)
        self._end_now(128 + self.told if self._code is None else self._code)

    def _end(self, first: signal.Signals) -> None:
        """Do what the first signal asks for."""
        if self._ending is not None:
            self._ending.wish.ask()
        if first in _WORDS:
            self._tell_others()
        self._leave_own()
        if self._rank == 0:
            if self._ending is not None and self._ending.running:
                self._delivered.wait(_OPEN_MPI_GRACE if self._hurried else _GRACE)
            code = self.finish()
        elif self._world is None:  # MPI may be about to start: it would hear nothing then
            code = 128 + self.told
        else:
            time.sleep(_OTHERS)
            self._say(f"rank {self._rank}")
            code = 128 + self.told
        self._give_up_others(code)
        _exit(code)

    def _watch(self, ending: "Ending") -> None:
        """Deliver the best so far where a run is late: what it does, on whichever rank, is not waited for."""
        from dmcmc.inference.runtime.memory import ACCOUNT

        compiled, left = 0.0, False
        while (now := time.perf_counter()) < max(ending.due, compiled) or not self._may_leave(now - ending.due):
            if ACCOUNT.compiles:  # what no warm-up has foreseen: else it would be compiled anew in every run
                compiled = now + _GRACE
            if now >= ending.due and not left:  # another rank, which rank 0 ends soon
                left = True
                self._leave_own()
            time.sleep(_GLANCE)
        if self.told:
            return
        if self._rank == 0:
            best, where = ending.best(), _place()
            if best is None or not self._claims():
                return
            if "DMCMC_DEBUG" in os.environ:
                os.write(2, f"dmcmc: late: {where}\n".encode())
            self._once(best)
            self._leave_own()
        self._give_up_others(0)
        _exit(self._code or 0)

    def _leave_own(self) -> None:
        """Let this rank leave what no other one knows."""
        if self._ending is not None and self._ending.leave is not None:
            self._ending.leave()

    def _may_leave(self, late: float) -> bool:
        """Return whether a late rank is not waited for: rank 0 has delivered, as it does, or it is rank 0."""
        if self._rank == 0 or self._world is None:
            return True
        if self._world.local_rank == 0 or not self._world.neighbours:
            return late > _BEHIND
        try:
            os.kill(self._world.neighbours[0], 0)
        except OSError:
            return True
        return False

    @property
    def _rank(self) -> int:
        return announced_rank(os.environ) if self._world is None else self._world.rank

    def _claims(self) -> bool:
        """Return whether the caller is the first that delivers; only rank 0 does."""
        with self._claim:
            claimed, self._claimed = self._claimed, True
        return not claimed and self._rank == 0

    def _once(self, result: Any) -> int:
        import msgspec  # with the result it is there

        assert self._deliver is not None
        self.tidy()
        if self.told and getattr(result, "status", "") == "timeout":
            result = msgspec.structs.replace(result, note=_WORDS[signal.Signals(self.told)])
        self._code = self._deliver(result)
        self._delivered.set()
        return self._code

    def _waited(self) -> int:
        """Return the exit code of the answer that another thread gives."""
        self._delivered.wait()
        return 1 if self._code is None else self._code

    def _say(self, more: str) -> None:
        line = f"dmcmc: {_WORDS[signal.Signals(self.told)]}{more and ': '}{more}\n"
        os.write(2, line.encode())

    def _tell_others(self) -> None:
        """Pass it on to the ranks of this machine."""
        for neighbour in [] if self._world is None else self._world.neighbours:
            with contextlib.suppress(OSError):  # it has ended
                os.kill(neighbour, next(code for code, meant in _PASSED_ON.items() if meant == self.told))

    def _give_up_others(self, code: int) -> None:
        """End all ranks by MPI: launchers do not all do so when one ends, or call that a failure of those they end.

        Open MPI's would say more than is wanted, and does not need it on one machine.
        """
        world = self._world
        if world is None or world.size == 1:
            return
        if world.rank == 0 and not (self._hurried and self.told):  # there Open MPI leaves no time
            time.sleep(_LEAVING)
        if world.size > world.local_size or (world.rank == 0 and not self._hurried):
            _leave_nothing()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # all is said: what MPI adds is nobody's concern
            world.abort(code)

    def _end_now(self, code: int) -> NoReturn:
        if self._claimed:  # what is being written is worth a moment
            self._delivered.wait(_SAME)
        _exit(code)


def _exit(code: int) -> NoReturn:
    """End the process at once."""
    _leave_nothing()
    os._exit(code)


def _leave_nothing() -> None:
    """Leave no part of a file, and the terminal as it was."""
    write = sys.modules.get("dmcmc.inference.runtime.atomic_write")
    if write is not None:
        write.discard_parts()
    if os.isatty(2):
        os.write(2, b"\x1b[?25h")  # a progress bar hides the cursor


def _place() -> str:
    """Return where in this package the main thread is: modules and functions, the innermost last."""
    found, frame = list[str](), sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and len(found) < _PLACES:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("dmcmc."):
            found.append(f"{module.removeprefix('dmcmc.')}.{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " > ".join(reversed(found))


def _nothing() -> None:
    pass


def _noted(number: int, frame: object) -> None:
    """Do nothing: the thread hears of it."""


SIGNALS = Signals()
