"""The kernels of a run: which are compiled, in which processes, and when all ranks may use them.

With a time budget, a run begins with what is compiled. It requests the kernel sets of its methods in the order of what
they are expected to bring. Other processes compile them (:mod:`.compiler_process`), and a method is used when all ranks
have agreed that its kernels are stored. Without a time budget, a run compiles what it calls, and the other processes
compile ahead.

The first rank of a node has the processes; the ranks of a node share the cache. All runs of this process share them.
They outlive a run until what it has requested is compiled, so that many short runs have their kernels after some time.
They end with this process.
"""

import atexit
import json
import math
import os
import pickle
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from dmcmc.config.settings import Settings
from dmcmc.inference.runtime.compile import (
    COMPILED,
    Kernel,
    KernelSet,
    compilation_of,
    compilation_seconds,
    kernels_supplied_by,
    release_compiler_metadata,
)
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.interpreted import compiles_first, is_interpreting
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import cores, end_process, python_command
from dmcmc.inference.storage.cache_folders import compiled_marker, put_marker, usable_folders
from dmcmc.inference.storage.numba_cache import unsaved_kernels
from dmcmc.mpi.world import World
from dmcmc.samplers.contract import tuning
from dmcmc.solving.observe import NoProgress, ProgressReporter

# Bytes of a process that compiles: about 350 MiB were measured for the largest kernels
PROCESS_BYTES = 400 << 20
_PROGRAM = "dmcmc.compilation.compiler_process"  # module that a process executes


class BackgroundCompiler:
    """Compiles kernel sets in several processes, those that bring most per second of compiling first.

    Sets for later, which no work waits for, have processes of their own. These work while nothing else waits, on at
    most half of the cores: a set that is requested then finds a free process at once.
    """

    def __init__(self) -> None:
        self._processes = 1  # at most; they are started when there is work for them
        self._runs = 0  # that have begun and not ended
        self._waiting: list[KernelSet] = []
        self._urgent: set[str] = set()  # names of the sets that come first
        self._left_over: set[str] = set()  # names of the sets that only runs before have requested; they come last
        self._later: set[str] = set()  # names of the sets for later
        self._requested: dict[str, bool] = {}  # by name: whether the set has been compiled, or cannot be compiled
        self._changed = threading.Condition()
        # By whether they are for sets for later: threads, each with a process; numbers of sets that they compile now
        self._threads: dict[bool, list[threading.Thread]] = {False: [], True: []}
        self._busy = {False: 0, True: 0}
        self._children: list[subprocess.Popen[bytes]] = []
        self._seconds: dict[int, float] = {}
        self._closed = False

    @property
    def seconds(self) -> float:
        """Processor seconds of all processes, up to the last kernel set that each has compiled."""
        return sum(self._seconds.values())

    def begin_run(self, processes: int) -> None:
        """Use at most some processes from now on, and compile what this run requests before what is left of others."""
        with self._changed:
            self._processes, self._runs = processes, self._runs + 1
            self._urgent.clear()
            if self._runs == 1:
                self._left_over = {kernels.name for kernels in self._waiting}

    def end_run(self, goes_on: bool) -> None:
        """Let the processes end when no run goes on, and what is waiting is compiled, or dropped (not ``goes_on``)."""
        with self._changed:
            self._runs -= 1
            if not (self._runs or goes_on):
                for kernels in self._waiting:
                    del self._requested[kernels.name]
                self._waiting.clear()
            self._changed.notify_all()

    def request(self, sets: "Sequence[KernelSet]", at_once: bool = False, later: bool = False) -> None:
        """Compile kernel sets by gain, and among equals the earlier ones first.

        Sets come before all others if ``at_once`` is True, and after all others if ``later`` is.
        """
        with self._changed:
            new, names = [one for one in sets if one.name not in self._requested], {one.name for one in sets}
            self._requested |= {kernels.name: False for kernels in new}
            self._left_over -= names
            self._urgent |= names if at_once else set()
            self._later = self._later | {kernels.name for kernels in new} if later else self._later - names
            self._waiting = sorted([*self._waiting, *new], key=self._place)
            self._changed.notify_all()
            for of_later in (False, True):
                most = self._most_for_later if of_later else self._processes
                idle, waiting = most - len(self._threads[of_later]), len(self._waiting_sets(of_later))
                for _ in range(min(idle, waiting) if not self._closed else 0):
                    run = partial(self._run_process, of_later)
                    thread = threading.Thread(target=run, name="dmcmc compiler", daemon=True)
                    self._threads[of_later].append(thread)
                    thread.start()

    @property
    def _most_for_later(self) -> int:
        """The largest number of processes that compile sets for later."""
        return max(1, self._processes // 2)

    def _waiting_sets(self, later: bool) -> "list[KernelSet]":
        """Return the waiting sets for later, or the others."""
        return [kernels for kernels in self._waiting if (kernels.name in self._later) == later]

    def _may_begin(self, later: bool) -> bool:
        """Return whether a process may begin with a waiting set."""
        others_come_first = later and bool(self._waiting_sets(False) or sum(self._busy.values()) >= self._processes)
        return bool(self._waiting_sets(later)) and not others_come_first

    def _place(self, kernels: "KernelSet") -> tuple[bool, bool, int]:
        """Return the place of a kernel set in the order of compiling."""
        return kernels.name in self._left_over, kernels.name not in self._urgent, kernels.rank

    def is_done(self, kernels: "KernelSet") -> bool:
        """Return whether a requested set has been compiled, or cannot be compiled by another process."""
        return self._requested.get(kernels.name, False)

    def wait(self, is_ready: Callable[[], bool], seconds: float) -> None:
        """Wait until a condition holds, for some seconds at most."""
        with self._changed:
            self._changed.wait_for(is_ready, seconds)

    def close(self) -> None:
        """End all processes, also those that compile."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for child in self._children:  # kernels are stored atomically, so that nothing is lost but the current one
            end_process(child)

    def _run_process(self, later: bool) -> None:
        """Start a process and give it one kernel set after the other."""
        try:
            child = subprocess.Popen(
                [*python_command(), "-m", _PROGRAM, *(["later"] if later else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        except OSError:  # no process can be started: the run compiles what it needs itself
            self._give_up_all(later)
            return
        with self._changed:
            self._children.append(child)
        while child.poll() is None and (kernels := self._next(later)) is not None:
            stored = False
            try:
                assert child.stdin is not None and child.stdout is not None
                child.stdin.write(pickle.dumps(kernels))
                child.stdin.flush()
                reply = json.loads(child.stdout.readline())
                stored, self._seconds[child.pid] = bool(reply["stored"]), float(reply["seconds"])
            except Exception:  # the process has ended, or the set cannot be sent to it
                pass
            marker = compiled_marker(kernels.name) if stored else None
            if marker is not None:
                put_marker(marker)
            with self._changed:
                self._requested[kernels.name] = True
                self._busy[later] -= 1
                self._changed.notify_all()
        if child.poll() is not None:
            self._give_up_all(later)
        end_process(child)  # also if it has started after the end

    def _next(self, later: bool) -> "KernelSet | None":
        """Return the next set to compile, when there is one; None if there is none left and no run goes on."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._may_begin(later) or self._closed or not (self._runs or self._waiting_sets(later))
            )
            if self._may_begin(later) and not self._closed:
                found = self._waiting_sets(later)[0]
                self._waiting.remove(found)
                self._busy[later] += 1
                self._changed.notify_all()
                return found
            self._leave(later)
            return None

    def _leave(self, later: bool) -> None:
        """Let another thread start a process when there is work again."""
        if threading.current_thread() in self._threads[later]:
            self._threads[later].remove(threading.current_thread())

    def _give_up_all(self, later: bool) -> None:
        """Regard what is waiting as done, because no process works on it."""
        with self._changed:
            self._leave(later)
            self._requested |= {kernels.name: True for kernels in self._waiting}
            self._waiting.clear()
            self._changed.notify_all()


_COMPILERS: dict[tuple[int, Path | None], BackgroundCompiler] = {}  # of this process; by its id and the kernel folder


def background_compiler() -> BackgroundCompiler:
    """Return the processes that compile for all runs of this process; others for another folder, or after a fork."""
    place = os.getpid(), compiled_marker("")
    if place not in _COMPILERS:
        _COMPILERS[place] = BackgroundCompiler()
        atexit.register(_COMPILERS[place].close)
    return _COMPILERS[place]


def _environment() -> dict[str, str]:
    """Return the environment of a process: one that is not a rank, with one thread for numerical libraries."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "PMIX_", "OMPI_", "MPI_"))}
    return own | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


# Names of the sets that finished runs without a time budget have needed: this process has compiled what they call.
# Processes that compile such a set for another short run would be ended with it, before they are done.
CALLED: set[str] = set()
_in_compilation = False  # whether this process compiles for another one, or before the clock starts


@contextmanager
def compiling_for_others() -> Iterator[None]:
    """Compile in the block whatever is called, without asking other processes."""
    global _in_compilation
    before, _in_compilation = _in_compilation, True
    try:
        with release_compiler_metadata():
            yield
    finally:
        _in_compilation = before


def compile_and_mark(kernels: KernelSet) -> None:
    """Compile a kernel set in this process, and mark it as compiled if all of its kernels are stored."""
    unsaved = unsaved_kernels()
    with compiling_for_others():
        kernels.compile()
    COMPILED.add(kernels.name)
    marker = compiled_marker(kernels.name)
    if marker is not None and unsaved == unsaved_kernels():
        put_marker(marker)


class ConcurrentWork(NamedTuple):
    """Work that a run can do while it waits for kernels.

    Attributes
    ----------
    kernels : KernelSet
        The kernels of that work itself.
    begin : callable
        Returns a context manager, in which the work is done by another thread.
    """

    kernels: KernelSet
    begin: Callable[[], AbstractContextManager[None]]


def compiles_before_clock() -> bool:
    """Return whether runs compile before their clocks start: if that is asked for, or kernels cannot be stored."""
    return compiles_first() or usable_folders().kernels is None


class KernelSupply:
    """The kernels of one run.

    Parameters
    ----------
    world
        The ranks.
    config
        Settings of the run.
    progress
        Receives one line if kernels are compiled in the background.
    stop
        Deadline of the run; by its time budget if None.

    Attributes
    ----------
    world : World
        The ranks.
    timed : bool
        Whether there is a time budget.
    stop : Deadline
        Deadline of the run. A kernel that is missing then ends the work that calls it.
    """

    def __init__(
        self, world: World, config: Settings, progress: ProgressReporter, stop: Deadline | None = None
    ) -> None:
        self.world, self._progress, self.timed = world, progress, config.budget.time is not None
        interprets = is_interpreting()
        self._off = interprets or _in_compilation
        self._first = not self._off and compiles_before_clock()
        self._compiler: BackgroundCompiler | None = None
        self._seconds_before = 0.0  # processor seconds of the compiler for earlier runs
        self._memory, self._needed = config.budget.bytes, set[str]()  # names of all sets that were requested
        self._begun = None if interprets else compilation_seconds()  # None: this process compiles nothing
        self._is_announced, self._starting, self._has_ended = False, threading.Lock(), False
        seconds = math.inf if config.budget.time is None else config.budget.time
        self.stop = stop or Deadline(time.perf_counter() + seconds)
        supplied = self.timed and not self._off and not self._first
        self._guard = kernels_supplied_by(self) if supplied else nullcontext()

    def __enter__(self) -> Self:
        self._guard.__enter__()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._guard.__exit__(None, None, None)
        self._has_ended = True
        if self._compiler is not None:
            self._compiler.end_run(goes_on=self.timed)
        if error_type is None and not self.timed:
            CALLED.update(self._needed)

    @property
    def compiles_first(self) -> bool:
        """Whether kernels are compiled when they are requested, before the clock of the run goes on."""
        return self._first

    @property
    def is_off(self) -> bool:
        """Whether nothing is requested: kernels are interpreted, or this process compiles for another one."""
        return self._off

    @property
    def seconds(self) -> float:
        """Processor seconds of compilation so far, in this process and in those that it has started.

        Runs at the same time share the processes, whose seconds count for each of them.
        """
        children = 0.0 if self._compiler is None else self._compiler.seconds - self._seconds_before
        return children if self._begun is None else children + compilation_seconds() - self._begun

    def request(self, *sets: KernelSet, at_once: bool = False, later: bool = False) -> float:
        """Compile kernel sets in the background, by gain; called by all ranks.

        Parameters
        ----------
        *sets
            The kernel sets.
        at_once
            Whether they come before all that is waiting.
        later
            Whether no work waits for them, so that they come after all others.

        Returns
        -------
        float
            Seconds that do not count as run time; 0 unless kernels are compiled before the clock starts.
        """
        if self._first:
            return self._compile_here(sets)
        self._needed |= {kernels.name for kernels in sets}
        called = set[str]() if self.timed else CALLED
        missing = [k for k in sets if not (self._off or k.name in called or k.is_compiled)]
        if not missing or self.world.local_rank:
            return 0.0
        self._started_compiler().request(missing, at_once, later)
        if not self._is_announced:
            self._is_announced = True
            methods = f"{len(missing)} of {len(self._needed)} methods"
            self._progress.stage(f"compiling {methods} in the background, once on this machine")
        return 0.0

    def is_ready(self, *sets: KernelSet) -> bool:
        """Return whether kernel sets can be used as far as this rank knows; without a time budget, always."""
        if self._off or not self.timed or self._first:
            return True
        compiler = self._compiler
        return all(kernels.is_compiled or (compiler is not None and compiler.is_done(kernels)) for kernels in sets)

    def all_ready(self, *sets: KernelSet) -> bool:
        """Return whether all ranks agree that kernel sets can be used; called by all ranks."""
        return all(self.world.allgather(bool(self.world.local_rank) or self.is_ready(*sets)))

    def wait(self, sets: Sequence[KernelSet], stop: Deadline, concurrent: "ConcurrentWork | None" = None) -> float:
        """Wait until all ranks can use kernel sets; called by all ranks. Without a time budget, do not wait.

        Parameters
        ----------
        sets
            The kernel sets, the most important first. They are requested if they are missing.
        stop
            Deadline of the run.
        concurrent
            Work for the time of waiting.

        Returns
        -------
        float
            Seconds that do not count as run time; 0 unless kernels are compiled before the clock starts.

        Raises
        ------
        OutOfTime
            On all ranks, if the deadline passes before the kernels are ready.
        """
        seconds = self.request(*sets)
        if self._off or not self.timed:
            return seconds
        while not self.all_ready(*sets):
            if any(self.world.allgather(stop.over)):
                self.world.on_first_rank(raise_out_of_time)
            works = concurrent is not None and self.all_ready(concurrent.kernels)
            next_to_come = [] if works or concurrent is None else [concurrent.kernels]
            with concurrent.begin() if works and concurrent is not None else nullcontext():
                while not (stop.over or self.is_ready(*sets) or any(map(self.is_ready, next_to_come))):
                    self._pause(sets)
        return seconds

    def wait_alone(self, *sets: KernelSet) -> None:
        """Wait until this rank can use kernel sets, or raise OutOfTime when the run ends; called by any thread."""
        while not self.is_ready(*sets):
            self.check_goes_on()
            self._pause(sets)

    def check_goes_on(self) -> None:
        """Raise OutOfTime if the run has ended."""
        if self._has_ended or self.stop.over:
            raise_out_of_time()

    def _pause(self, sets: Sequence[KernelSet]) -> None:
        """Wait a moment, or until this rank's kernels are ready."""
        if self._compiler is None:
            time.sleep(tuning.CHECK_SECONDS)
        else:
            self._compiler.wait(lambda: self.is_ready(*sets), tuning.CHECK_SECONDS)

    def supply(self, kernel: Kernel, signature: Any) -> None:
        """Wait until another process has compiled a kernel that this one calls; raise OutOfTime at the deadline.

        A kernel that other processes cannot compile is left to this one.
        """
        needed = KernelSet(f"{kernel.py_func.__qualname__} {signature}", compilation_of(kernel, signature))
        compiler = self._started_compiler()
        compiler.request([needed], at_once=True)
        while not compiler.is_done(needed):
            if self.stop.over:
                raise_out_of_time()
            compiler.wait(lambda: compiler.is_done(needed), tuning.CHECK_SECONDS)

    def _started_compiler(self) -> BackgroundCompiler:
        """Return the processes that compile, which are started with their first kernel set."""
        with self._starting:
            if self._compiler is None:
                self._compiler = background_compiler()
                self._seconds_before = self._compiler.seconds
                self._compiler.begin_run(self._processes())
            return self._compiler

    def _compile_here(self, sets: Sequence[KernelSet]) -> float:
        """Compile kernel sets in this process, one rank per node; return the seconds."""
        start = time.perf_counter()
        missing = [kernels for kernels in sets if not kernels.is_compiled]
        mine = [] if self.world.local_rank and usable_folders().kernels is not None else missing
        if not any(self.world.allgather(bool(mine))):
            return 0.0
        for kernels in mine:
            with suppress(Exception):  # the run itself reports the error when it does this work
                compile_and_mark(kernels)
        self.world.wait()
        return time.perf_counter() - start

    def _processes(self) -> int:
        """Return the number of processes that the cores and the memory of the node allow; at least one."""
        available = MEMORY_ACCOUNT.available_bytes()
        memory = self._memory if available is None else available
        return max(1, min(cores() * self.world.local_size, memory // PROCESS_BYTES))


def kernels_until(stop: Deadline, config: Settings) -> KernelSupply:
    """Return the kernels of work of this process alone, which ends at a deadline if there is a time budget."""
    return KernelSupply(World(), config, NoProgress(), stop)


def raise_out_of_time() -> None:
    """Raise the error that ends the planned work of all ranks."""
    raise OutOfTime("methods were still being compiled; the next run finds those that are finished")
