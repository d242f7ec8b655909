"""Read a result from a JSON file, which may be damaged, with all fields checked."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dmcmc.files.json_text import plain_json
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import FORMAT_VERSION

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
    try:
        data = plain_json(path.read_bytes())
        if not isinstance(data, dict) or not {*_NEEDED} <= data.keys():
            raise ValueError(f"it has no {', '.join(_NEEDED[:-1])} and {_NEEDED[-1]}")
        version = data.get("format_version", 1)
        if version != FORMAT_VERSION:
            raise ValueError(f"format_version {version!r} is not read by this version: run it again")
        plain: dict[str, Any] = msgspec.to_builtins(msgspec.convert(data, StoredResult))
    except (OSError, ValueError) as error:  # a ValidationError is a ValueError
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise FileError(f"{path}: is not the result of a run: {reason}") from None
    return plain
