"""Read a result from a JSON file, which may be damaged, with all fields checked; and the provenance of results.

The provenance is versions, hardware and settings, without names of hosts, users or folders.
"""

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dmcmc.config.settings import Settings
from dmcmc.files.write import plain_json, read_own
from dmcmc.inference.runtime.device import describe_gpu
from dmcmc.inference.runtime.memory import format_bytes, process_memory
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.storage.cache_folders import describe_cache
from dmcmc.results.result import FORMAT_VERSION, Effort
from dmcmc.results.version import __version__

Seconds = Annotated[float, Meta(ge=-1e12, le=1e12)]
Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1.000001)]  # rounded shares may add up to a little more than 1

_NEEDED = ("status", "objective", "trace", "agents", "provenance")  # fields of every result of a run


class StoredPoint(msgspec.Struct):
    """A point of the trace; the fields are those of :class:`~dmcmc.results.result.TracePoint`."""

    time: Seconds
    objective: Number | None = None
    bound: Number | None = None
    found_by: str = ""
    bound_shares: dict[str, Share] = {}


class StoredWork(msgspec.Struct):
    """The work of an improver; the fields are those of :class:`~dmcmc.results.result.WorkDone`."""

    improver: str
    seconds: Seconds = 0.0
    objective_gain: float = 0.0
    bound_gain: float = 0.0


class StoredAgent(msgspec.Struct):
    """The measurements of an agent; the fields are those of :class:`~dmcmc.results.result.AgentMetrics`."""

    name: str
    variables: Count = 0
    interface: Count = 0
    rows: Count = 0
    msg_count: Count = 0
    msg_size: Count = 0
    time: Seconds = 0.0
    gap: float | None = None


class StoredPlan(msgspec.Struct):
    """The part of a run's plan that pages show: the parent of each agent in the pseudo-tree, None for roots."""

    pseudo_tree: dict[str, str | None] | None = None


class StoredConfig(msgspec.Struct):
    """The part of a run's configuration that pages show: the section ``problem``."""

    problem: dict[str, Any] | None = None


class StoredProvenance(msgspec.Struct):
    """The parts of a result's provenance that pages show."""

    plan: StoredPlan | None = None
    config: StoredConfig | None = None


class StoredResult(msgspec.Struct, kw_only=True):
    """The fields of a result that pages show; they are those of :class:`~dmcmc.results.result.Result`."""

    status: str
    objective: Number | None
    bound: Number | None = None
    gap: float | None = None
    time: Seconds
    simulated_time: Seconds | None = None
    msg_count: Count = 0
    msg_size: Count = 0
    note: str | None = None
    sense: str = ""
    assignment: dict[str, Any] | None = None
    trace: list[StoredPoint]
    course: list[Effort] = []
    agents: list[StoredAgent]
    work: list[StoredWork] | None = None
    provenance: StoredProvenance


def read_result(path: Path) -> dict[str, Any]:
    """Return the data of a result as plain data with the fields of :class:`StoredResult`.

    Raises
    ------
    FileError
        If the file cannot be read, or is not the result of a run in this version's format; one line with the field.
    """
    return read_own(path, "the result of a run", _result_in)


def _result_in(content: bytes) -> dict[str, Any]:
    """Return the data of a result in JSON text; raise a ``ValueError`` if it is none in this version's format."""
    data = plain_json(content)
    if not isinstance(data, dict) or not {*_NEEDED} <= data.keys():
        raise ValueError(f"it has no {', '.join(_NEEDED[:-1])} and {_NEEDED[-1]}")
    version = data.get("format_version", 1)
    if version != FORMAT_VERSION:
        raise ValueError(f"format_version {version!r} is not read by this version: run it again")
    plain: dict[str, Any] = msgspec.to_builtins(msgspec.convert(data, StoredResult))
    return plain


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
    problem = getattr(config, "problem", None) or {}
    return {
        "command": _command(),
        "config": msgspec.to_builtins(config),
        "problem_sha256": _hash_of(problem.get("file")),
        "plugin": _package_of(config.algorithm_settings.name),
        "plan": None if plan is None else dict(plan),
        "seed": config.seed,
        "versions": versions(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device,
        "ranks": ranks,
        "threads": threads,
    }


def _command() -> str | None:
    """Return the command line of dmcmc; None in another program."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    return shlex.join(["dmcmc", *sys.argv[1:]]) if name == "dmcmc" else None


def _hash_of(file: str | None) -> str | None:
    """Return the SHA-256 hash of a problem file; None without one, or for standard input."""
    with suppress(OSError), open(file or "", "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
    return None


def _package_of(algorithm: str) -> str | None:
    """Return name and version of the package that an algorithm is from; None for dmcmc's own ones."""
    found = (entry.dist for entry in metadata.entry_points(group="dmcmc.algorithms", name=algorithm))
    return next((f"{package.name} {package.version}" for package in found if package is not None), None)


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
