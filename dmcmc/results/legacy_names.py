"""Former names in results: the tables of old and new names, and the conversion of results that were read back.

Results without ``format_version`` are version 1 and have the former names. Former names of configuration keys are in
:mod:`dmcmc.config.legacy_keys`.
"""

from collections.abc import Mapping
from typing import Any

from dmcmc.config.legacy_keys import current_dotted

RENAMED_IMPROVERS: Mapping[str, str] = {
    "eliminate": "exact elimination",
    "filter": "function filtering",
    "sample": "sampling",
    "branch": "branch and bound",
    "search": "local search",
    "combine": "recombination",
    "search engine": "external search",
    "gpu search": "gpu chains",
}
"""Former names of improvers in ``work``, ``found_by`` and ``bound_shares``, and the present ones."""

RENAMED_FIELDS: Mapping[str, Mapping[str, str]] = {
    "Result": {"reductions": "presolve"},
    "AgentMetrics": {"kept": "retained"},
    "RetainedEntries": {"incomplete": "sparse_messages", "entries": "dense_entries", "rows": "retained_entries"},
    "Solution": {"by": "found_by"},
    "TracePoint": {"by": "found_by", "kept": "retained", "parts": "bound_shares"},
    "WorkDone": {"kind": "improver", "objective": "objective_gain", "bound": "bound_gain"},
    "Plan": {"reduced": "presolve", "incomplete": "sparse_tables"},
}
"""Former fields, by the class of :mod:`dmcmc.results.result` or :mod:`dmcmc.report.plan`, and the present ones."""

RENAMED_CLASSES = {"Reductions": "PresolveReport", "KeptEntries": "RetainedEntries"}
"""Former names of classes in :mod:`dmcmc.results.result`, and the present ones."""


def current_improvers(names: str) -> str:
    """Return improver names, separated by commas, with the former ones replaced."""
    return ", ".join(RENAMED_IMPROVERS.get(name, name) for name in names.split(", "))


def current_result(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON data of a result of any version with the present names; ``data`` is not changed.

    A result with ``format_version`` has the present names already and is returned as a copy.

    >>> current_result({"status": "optimal", "reductions": None, "trace": [{"by": ""}]})
    {'status': 'optimal', 'presolve': None, 'trace': [{'found_by': ''}]}
    """
    if "format_version" in data:
        return dict(data)
    current = _renamed("Result", data)
    if current.get("agents"):
        current["agents"] = [_with_sizes(_renamed("AgentMetrics", agent)) for agent in current["agents"]]
    if current.get("trace"):
        current["trace"] = [_current_point(point) for point in current["trace"]]
    if current.get("work"):
        work = [_renamed("WorkDone", item) for item in current["work"]]
        current["work"] = [item | {"improver": current_improvers(item.get("improver", ""))} for item in work]
    if current.get("tables") == "incomplete":  # of marginals
        current["tables"] = "sparse"
    provenance = current.get("provenance")
    if provenance and provenance.get("config"):
        current["provenance"] = {**provenance, "config": current_dotted(provenance["config"])}
    return current


def _current_point(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return one point of a trace with the present names."""
    current = _with_sizes(_renamed("TracePoint", point))
    if current.get("found_by"):
        current["found_by"] = current_improvers(current["found_by"])
    if current.get("bound_shares"):
        current["bound_shares"] = {current_improvers(name): share for name, share in current["bound_shares"].items()}
    return current


def _with_sizes(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an agent or a trace point with the present names in ``retained``."""
    return data | {"retained": _renamed("RetainedEntries", data["retained"])} if data.get("retained") else data


def _renamed(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of one object with the present names; their order stays."""
    names = RENAMED_FIELDS[kind]
    return {names.get(name, name): value for name, value in data.items()}
