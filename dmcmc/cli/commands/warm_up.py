"""``dmcmc warm-up``: compile kernels in advance, so that no later run of this user on this machine waits for it.

All kernels are compiled in several child processes (:mod:`dmcmc.cli.warm_up_child`). The kernels of one configuration
are compiled by a short run of it.
"""

import json
import os
import select
import subprocess
import tempfile
import time
from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from dmcmc.cli.inputs import configuration, is_calendar, is_configuration
from dmcmc.cli.progress import emit, progress_for
from dmcmc.cli.warm_up_child import MEASURE, tasks
from dmcmc.files.document import value_of
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError
from dmcmc.inference.runtime.interpreted import COMPILE_FIRST
from dmcmc.inference.runtime.memory import process_memory
from dmcmc.inference.runtime.threads import cores, end_process, python_command
from dmcmc.inference.storage.cache_folders import CacheFolders, find_folders, store_total, stored_kernels
from dmcmc.mpi.compute_node import launched

_CHILD = "dmcmc.cli.warm_up_child"
_CHILD_BYTES = 1 << 30  # memory of a child process that compiles: 300 MB of interpreter, up to 500 MB of compiler
_MAX_NAMED = 3  # failed tasks that an error message names: they mostly have the same reason
_POLL_SECONDS = 0.5  # between two updates of the progress
_IDLE_SECONDS = 30.0  # after this time without a new kernel, a run is taken to have compiled all that it needs


class WarmUpError(DmcmcError):
    """Some kernels could not be compiled ahead; the message names the tasks and the reasons."""

    exit_code = 1


class Compiled(NamedTuple):
    """The result of a warm-up.

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


def warm_up_kernels(device: str, progress: Any, processes: int | None = None) -> Compiled:
    """Compile all kernels for a device, and measure the speed of this machine.

    Parameters
    ----------
    device
        ``auto``, ``cpu`` or ``cuda``.
    progress
        Its method ``stage`` is called with the progress as a line of text.
    processes
        Number of child processes; None for one per core, or less if the memory is small.

    Raises
    ------
    WarmUpError
        If some kernels could not be compiled.
    DmcmcError
        If there is no folder for the kernels, or it cannot be written.
    """
    start, found, names = time.perf_counter(), _writable_folders(), list(tasks())
    before = _stored(found)
    failures = compile_in_children(names, device, processes or _most_processes(), found, progress)
    failures += compile_in_children([MEASURE], device, 1, found, progress)
    if failures:
        more = f"; and {len(failures) - _MAX_NAMED} more" if len(failures) > _MAX_NAMED else ""
        text = "; ".join(failures[:_MAX_NAMED])
        raise WarmUpError(f"warm-up: {len(failures)} of {len(names)} tasks failed: {text}{more}")
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


def compile_in_children(
    names: Sequence[str], device: str, processes: int, found: CacheFolders, progress: Any
) -> list[str]:
    """Carry out tasks in child processes, which end with this function; return a text per task that failed.

    Each process is given the next task when it has finished one.

    Parameters
    ----------
    names
        Names of tasks of :mod:`dmcmc.cli.warm_up_child`.
    device, progress
        As for :func:`warm_up`.
    processes
        Number of child processes, at least 1.
    found
        The folders for cached files.
    """
    waiting, failures = deque(names), list[str]()
    busy: dict[subprocess.Popen[bytes], str] = {}
    try:
        for _ in range(min(processes, len(names))):
            _assign(_start(), waiting.popleft(), device, busy)
        while busy:
            done = len(names) - len(waiting) - len(busy)
            progress.stage(f"compiling: {done} of {len(names)} tasks, {_stored(found)} kernels so far")
            pipes = {child.stdout: child for child in busy if child.stdout is not None}
            for pipe in select.select(pipes, [], [], _POLL_SECONDS)[0]:
                child, answer = pipes[pipe], pipe.readline()
                name = busy.pop(child)
                error = json.loads(answer) if answer else f"its process ended (exit code {child.wait()})"
                if error:
                    failures.append(f"{name}: {error}")
                if not answer or not waiting:
                    end_process(child)
                if waiting:
                    _assign(child if answer else _start(), waiting.popleft(), device, busy)
    finally:
        for child in busy:
            end_process(child)
    return failures


def _assign(child: "subprocess.Popen[bytes]", name: str, device: str, busy: dict[Any, str]) -> None:
    """Let a child process carry out a task."""
    busy[child] = name
    assert child.stdin is not None
    with suppress(OSError):  # the process has ended, which is noticed when its answer is read
        child.stdin.write(json.dumps([name, device]).encode() + b"\n")
        child.stdin.flush()


def _start(command: Sequence[str] = (), errors: Any = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
    """Start a child process, which ends with this process; ``command`` is the command line that it carries out."""
    return subprocess.Popen(
        [*python_command(), "-m", _CHILD, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL if command else subprocess.PIPE,
        stderr=errors,
        env={name: value for name, value in os.environ.items() if not launched({name: value})} | COMPILE_FIRST,
        start_new_session=True,  # Ctrl-C is for this process only
    )


def warm_up(arguments: Namespace) -> int:
    """Compile all kernels in advance, or those of one configuration."""
    jobs = None if arguments.jobs is None else value_of(arguments.jobs, "--jobs")
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
        raise ConfigError(f"--jobs: expected a whole number of at least 1, got {arguments.jobs!r}")
    with progress_for(0) as progress:
        if arguments.config is None:
            compiled = warm_up_kernels(arguments.device or "auto", progress, jobs)
        else:
            compiled = warm_up_by_runs(_short_runs(arguments.config, arguments.device), progress)
    emit(f"{compiled.new} kernels compiled, {compiled.stored} stored ({compiled.seconds:.0f} s)")
    return 0


def _short_runs(path: str, device: str | None) -> list[list[str]]:
    """Return command lines that need the same kernels as a later run of a file, and write nothing.

    One has a time limit of one second. Without a time limit in the file, there is another one without.
    """
    command = "run" if is_calendar(path) or is_configuration(path) else "solve"
    run = [command, path, "--quiet", "--json", "--set", "output=null", "--set", "checkpoint=null"]
    run += [] if device is None else ["--device", device]
    limited = is_calendar(path) or (command == "run" and configuration(path)[0].budget.time is not None)
    return [[*run, "--timeout", "1"], *([] if limited else [run])]
