"""``dmcmc warm-up``: compile kernels in advance, so that no later run of this user on this machine waits for it.

All kernels are compiled by solving small problems of each kind with each kind of settings, in several child processes
(:mod:`dmcmc.cli.setup_commands.warm_up_child`). The kernels of one configuration are compiled by a short run of it.
"""

import json
import os
import select
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

from dmcmc.cli.setup_commands.warm_up_child import PROBLEMS, SETTINGS
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.memory import process_memory
from dmcmc.inference.runtime.processes import end_process, python_command
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.storage.cache_contents import store_total
from dmcmc.inference.storage.cache_folders import CacheFolders, find_folders, stored_kernels
from dmcmc.mpi.launcher import launched

_CHILD = "dmcmc.cli.setup_commands.warm_up_child"
_CHILD_BYTES = 1 << 30  # memory of a child process that compiles: 300 MB of interpreter, up to 500 MB of compiler
_POLL_SECONDS = 0.5  # between two updates of the progress
_IDLE_SECONDS = 30.0  # a run that has compiled no kernel for so long has compiled all that it needs at its beginning


class WarmUpError(DmcmcError):
    """Some kernels could not be compiled ahead; the message names the kinds of runs and the reasons."""

    exit_code = 1


class Kind(NamedTuple):
    """A kind of runs that needs its own kernels.

    Attributes
    ----------
    problem, settings : str
        Names in ``PROBLEMS`` and ``SETTINGS`` of :mod:`dmcmc.cli.setup_commands.warm_up_child`.
    """

    problem: str
    settings: str


class Compiled(NamedTuple):
    """What a warm-up has done.

    Attributes
    ----------
    new : int
        Number of kernels that it has compiled.
    stored : int
        Number of kernels that are stored now.
    seconds : float
        Wall-clock seconds that it took.
    """

    new: int
    stored: int
    seconds: float


def all_kinds() -> list[Kind]:
    """Return all kinds of runs; neighbours differ in the problem, so that processes first compile different kernels."""
    return [Kind(problem, settings) for settings, problem in product(SETTINGS, PROBLEMS)]


def warm_up(device: str, progress: Any, processes: int | None = None, kinds: Iterable[Kind] = ()) -> Compiled:
    """Compile the kernels for a device.

    Parameters
    ----------
    device
        ``auto``, ``cpu`` or ``cuda``.
    progress
        Its method ``stage`` is called with the progress as a line of text.
    processes
        Number of child processes; None for one per core, or less if the memory is small.
    kinds
        The kinds of runs to compile for; none for all.

    Raises
    ------
    WarmUpError
        If kernels of some kinds of runs could not be compiled.
    DmcmcError
        If there is no folder for the kernels, or it cannot be written.
    """
    start, found, todo = time.perf_counter(), _writable_folders(), list(kinds) or all_kinds()
    before = _stored(found)
    failures = _compile_all(todo, device, min(processes or _most_processes(), len(todo)), found, progress)
    if failures:
        raise WarmUpError(f"warm-up: {len(failures)} of {len(todo)} kinds of runs failed: {'; '.join(failures)}")
    if set(todo) == set(all_kinds()):
        store_total(found)
    return Compiled(_stored(found) - before, _stored(found), time.perf_counter() - start)


def warm_up_by_runs(commands: Iterable[Sequence[str]], progress: Any) -> Compiled:
    """Compile the kernels that command lines need by carrying them out, one after the other.

    A run is ended when it has compiled nothing for 30 seconds.

    Parameters
    ----------
    commands
        The arguments of ``dmcmc``.
    progress
        As for :func:`warm_up`.

    Raises
    ------
    WarmUpError
        If a command reports an error.
    DmcmcError
        As for :func:`warm_up`.
    """
    start, found = time.perf_counter(), _writable_folders()
    before = _stored(found)
    for command in commands:
        _carry_out(command, found, progress)
    return Compiled(_stored(found) - before, _stored(found), time.perf_counter() - start)


def _carry_out(command: Sequence[str], found: CacheFolders, progress: Any) -> None:
    """Carry out a command line in a child process, until it ends or compiles nothing for some time."""
    with tempfile.TemporaryFile() as errors:
        child = _start(command, errors)
        try:
            changed, stored = time.perf_counter(), _stored(found)
            while child.poll() is None and time.perf_counter() - changed < _IDLE_SECONDS:
                progress.stage(f"compiling for {' '.join(command[:2])}: {stored} kernels are stored")
                time.sleep(_POLL_SECONDS)
                if _stored(found) != stored:
                    stored, changed = _stored(found), time.perf_counter()
        finally:
            end_process(child)
        errors.seek(0)
        lines = errors.read().decode(errors="replace").splitlines()
    reasons = [line for line in lines if line.startswith(("dmcmc: error: ", "dmcmc: internal error: "))]
    if reasons:
        raise WarmUpError(f"warm-up: {reasons[-1].partition('error: ')[2]}")


def _writable_folders() -> CacheFolders:
    """Return the folders for cached files; raise an error if kernels cannot be stored there."""
    found = find_folders()
    if found.kernels is None:
        raise DmcmcError(f"warm-up: {found.problem}")
    if not os.access(found.kernels, os.W_OK):
        raise DmcmcError(f"warm-up: {found.kernels} cannot be written; use --cache-dir to name another folder")
    return found


def _stored(found: CacheFolders) -> int:
    """Return the number of stored kernels."""
    return 0 if found.kernels is None else len(stored_kernels(found.kernels))


def _most_processes() -> int:
    """Return the number of child processes for the cores and the memory that this process may use."""
    memory = process_memory()
    return cores() if memory is None else max(1, min(cores(), memory // _CHILD_BYTES))


def _compile_all(kinds: Sequence[Kind], device: str, processes: int, found: CacheFolders, progress: Any) -> list[str]:
    """Compile the kernels of some kinds of runs in child processes; return a text per kind that failed.

    Each process is given the next kind when it has finished one. All processes end with this function.
    """
    waiting, failures, done = deque(kinds), list[str](), 0
    busy: dict[subprocess.Popen[bytes], Kind] = {}
    try:
        for _ in range(processes):
            _assign(_start(), waiting.popleft(), device, busy)
        while busy:
            progress.stage(f"compiling: {done} of {len(kinds)} kinds of runs, {_stored(found)} kernels")
            ready = select.select([child.stdout for child in busy], [], [], _POLL_SECONDS)[0]
            for child in [child for child in busy if child.stdout in ready]:
                kind, alive = busy.pop(child), True
                assert child.stdout is not None
                answer = child.stdout.readline()
                done, alive = done + 1, bool(answer)
                error = json.loads(answer) if alive else f"its process ended (exit code {child.wait()})"
                if error:
                    failures.append(f"{kind.problem}, {kind.settings}: {error}")
                if not alive or not waiting:
                    end_process(child)
                if waiting:
                    _assign(child if alive else _start(), waiting.popleft(), device, busy)
    finally:
        for child in busy:
            end_process(child)
    return failures


def _assign(child: "subprocess.Popen[bytes]", kind: Kind, device: str, busy: dict[Any, Kind]) -> None:
    """Let a child process compile for a kind of runs."""
    busy[child] = kind
    assert child.stdin is not None
    try:
        child.stdin.write(json.dumps([*kind, device]).encode() + b"\n")
        child.stdin.flush()
    except OSError:
        pass  # it has ended, which is noticed when its answer is read


def _start(command: Sequence[str] = (), errors: Any = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
    """Start a child process, which ends with this process; ``command`` is the command line that it carries out."""
    return subprocess.Popen(
        [*python_command(), "-m", _CHILD, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL if command else subprocess.PIPE,
        stderr=errors,
        env={name: value for name, value in os.environ.items() if not launched({name: value})},
        start_new_session=True,  # Ctrl-C is for this process only
    )
