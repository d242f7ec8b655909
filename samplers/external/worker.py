"""The search process: reads jobs from standard input and lets an engine print what it finds.

``process.py`` starts it as a script with the file of an engine, which has two functions: ``prepare()`` imports the
engine's library, and ``search(job, arrays)`` searches one problem and prints. They import no
modules of dmcmc but the small ones in its folder, so that the process starts fast.

A job is a line of JSON, ``{"bytes": ..., "top": ..., "seconds": ...}``, followed by that number of bytes of a NumPy
archive (``CostProblem.save``). ``top`` is the cost to beat and ``seconds`` the time limit. The answer ends with a line
``done``. The process ends with its parent, however the parent ends.
"""

import ctypes
import importlib.util
import io
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """Search one job after the other within a memory limit in bytes besides the libraries (0: no limit)."""
    memory, parent = int(sys.argv[1]), int(sys.argv[2])
    _die_with(parent)
    sys.path[0] = str(Path(__file__).parents[3])  # the folder of the package dmcmc, which engines import
    sys.modules["mpi4py"] = None  # type: ignore[assignment]  # toulbar2 would join the ranks of an MPI run
    engine = _imported(sys.argv[3])
    engine.prepare()
    if memory:
        limit = _mapped_bytes() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    jobs = sys.stdin.buffer
    while line := jobs.readline():
        job = json.loads(line)
        with np.load(io.BytesIO(jobs.read(job["bytes"])), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        engine.search(job, arrays)
        print("\ndone", flush=True)


def _imported(path: str) -> Any:
    """Import the file of an engine."""
    specification = importlib.util.spec_from_file_location("engine", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _die_with(parent: int) -> None:
    """Ask the system to kill this process when its parent ends; where it cannot, the process ends after the job."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before that
        os._exit(1)


def _mapped_bytes() -> int:
    """Return the bytes of address space that this process has mapped; a guess if the system does not report it."""
    try:
        with open("/proc/self/statm") as stream:
            return int(stream.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 1 << 30


if __name__ == "__main__":
    main()
