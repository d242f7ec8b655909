"""The provenance of results: versions, hardware and settings, without names of hosts, users or folders."""

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
from dmcmc.inference.runtime.memory import format_bytes, process_memory
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.storage.cache_contents import describe_cache
from dmcmc.results.version import __version__

_MPI_VERSION_SCRIPT = (
    "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
)
_PACKAGES = ("numpy", "numba", "networkx", "mpi4py", "msgspec", "PyYAML", "rich")


@lru_cache
def versions() -> Mapping[str, str | None]:
    """Return the versions of dmcmc, Python and its packages (None: not installed) without importing them."""
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
    """Return the data that is needed to repeat a run.

    Parameters
    ----------
    config
        The settings with all defaults and overrides.
    ranks, threads
        Number of MPI ranks, and of threads per rank.
    plan
        The choices of the run as plain data.
    device
        ``cuda`` if any rank used a GPU, otherwise ``cpu``.
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
    """Return versions and hardware by name, as ``dmcmc info`` shows them."""
    return {
        **versions(),
        "mpi": _mpi_library(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": f"{cores()} usable of {os.cpu_count()}",
        "threads": cores(),
        "memory": _memory(),
        **describe_cache(),
        "gpu": describe_gpu(),
    }


def rank_machine() -> dict[str, Any]:
    """Return host, cores and GPU of this process, for display only: results contain no host names."""
    return {"host": platform.node(), "cores": cores(), "gpu": describe_gpu()}


def _mpi_library() -> str:
    """Return the first line of the MPI library's version text.

    Another process loads the library, unless MPI is running already: after loading it without starting MPI, this
    process could not start MPI any more.
    """
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        text = MPI.Get_library_version()
    else:
        completed = subprocess.run(
            [sys.executable, "-P", "-c", _MPI_VERSION_SCRIPT], capture_output=True, text=True, check=False
        )
        if completed.returncode:
            return f"not found ({' '.join(completed.stderr.splitlines()[-1:])[:100]})"
        text = completed.stdout
    return " ".join(text.strip("\0 \n").splitlines()[0].split())


def _memory() -> str:
    """Return the memory that this process may use: the least of the machine, the container and the process limit."""
    available = process_memory()
    return "unknown" if available is None else format_bytes(available)
