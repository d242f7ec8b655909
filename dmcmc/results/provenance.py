"""Where a result comes from: versions, machine and settings; nothing that names a host, a user or a folder."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from typing import Any

import msgspec

from dmcmc.config.settings import Settings
from dmcmc.inference.runtime.device import describe_gpu
from dmcmc.inference.runtime.kernel_cache import kernel_folder
from dmcmc.inference.runtime.memory import process_memory, readable
from dmcmc.inference.runtime.threads import cores
from dmcmc.results.version import __version__

_ASK = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
_PACKAGES = ("numpy", "numba", "networkx", "mpi4py", "msgspec", "PyYAML", "rich")


@lru_cache
def versions() -> Mapping[str, str | None]:
    """Return the versions of dmcmc, Python and the packages it stands on (None: not installed), importing none."""
    found: dict[str, str | None] = {"dmcmc": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def provenance(
    config: Settings, ranks: int, threads: int, plan: Mapping[str, Any] | None = None, device: str = "cpu"
) -> dict[str, Any]:
    """Return what it takes to repeat a run.

    Parameters
    ----------
    config
        As resolved: defaults and overrides filled in.
    ranks, threads
        Processes, and threads in each.
    plan
        What was chosen, as plain data.
    device
        ``cuda`` if any process used a GPU.
    """
    return {
        "config": msgspec.to_builtins(config),
        "plan": None if plan is None else dict(plan),
        "seed": config.seed,
        "versions": versions(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device,
        "ranks": ranks,
        "threads": threads,
    }


def machine() -> dict[str, Any]:
    """Return what ``dmcmc info`` shows, by name."""
    return {
        **versions(),
        "mpi": _mpi_library(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": f"{cores()} usable of {os.cpu_count()}",
        "threads": cores(),
        "memory": _memory(),
        "cache": str(kernel_folder() or "__pycache__ beside the installed sources"),
        "gpu": describe_gpu(),
    }


def seat() -> dict[str, Any]:
    """Return where this process works: host, cores and GPU. For the user's eyes; no result names a host."""
    return {"host": platform.node(), "cores": cores(), "gpu": describe_gpu()}


def _mpi_library() -> str:
    """Return the first line of what the MPI library calls itself.

    MPI is not started for it, so another process loads it: in this one nobody could start MPI any more.
    """
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        text = MPI.Get_library_version()
    else:
        asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=False)
        if asked.returncode:
            return f"not found ({' '.join(asked.stderr.splitlines()[-1:])[:100]})"
        text = asked.stdout
    return " ".join(text.strip("\0 \n").splitlines()[0].split())


def _memory() -> str:
    """Return the memory of this process: the machine's, its container's or its own limit's, whichever is least."""
    there = process_memory()
    return "unknown" if there is None else readable(there)
