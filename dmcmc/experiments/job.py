"""Carry out one run of an experiment, and make the record that the journal keeps of it."""

import json
import time
from collections.abc import Mapping
from typing import Any, Literal

from dmcmc.config.configuration import Config, config_of
from dmcmc.config.document import Document
from dmcmc.config.problem_section import problem_of
from dmcmc.experiments.bucket import largest_bucket
from dmcmc.experiments.peers.registry import PEERS
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import DmcmcError, ResourceError
from dmcmc.mpi.world import World
from dmcmc.results.outcome import quality_of
from dmcmc.results.result import Result, gap_of

_MAX_POINTS = 200  # points of a trace
# Small problems that compile the kernels of all kinds of factors.
_WARM_UP_PROBLEMS: dict[str, dict[str, Any]] = {
    "meeting-scheduling": {"agents": 3, "variables_per_agent": 4, "domain_size": 6},
    "random-network": {"nodes": 8, "domain_size": 4, "tightness": 0.1, "agents": 4},
}
_FIELDS = (
    "status",
    "objective",
    "bound",
    "gap",
    "violation",
    "sense",
    "time",
    "simulated_time",
    "msg_count",
    "msg_size",
)


def carry_out(job: Mapping[str, Any], world: World | None = None) -> dict[str, Any] | None:
    """Carry out a job; errors become part of the record, except those that end a process.

    Parameters
    ----------
    job
        ``data`` (a configuration), ``peer``, ``seconds`` and ``task``, see :class:`dmcmc.experiments.plan.PlannedRun`.
    world
        The MPI ranks that solve it together; a peer runs on rank 0 only.

    Returns
    -------
    dict or None
        ``outcome`` (``done``, ``failed`` or ``out of memory``) with the fields of the answer or with ``error``; None on
        ranks other than 0.
    """
    try:
        return _solved(job, world or World())
    except (ResourceError, MemoryError) as error:
        return {"outcome": "out of memory", "error": _line(error)}
    except Exception as error:  # a failure is a result
        return {"outcome": "failed", "error": _line(error)}


def warm_up(job: Mapping[str, Any], warmed: set[str]) -> None:
    """Compile the kernels of a job by solving small problems, once per method, before the time of the run starts.

    Peers compile nothing here. A job with a time budget has one second. The kernels of a GPU depend on the problem's
    shape, so on a GPU the first run of a case is carried out twice.

    Parameters
    ----------
    job
        The job that follows.
    warmed
        Methods and cases whose kernels are compiled; this one is added.
    """
    data = {name: part for name, part in job["data"].items() if name not in ("problem", "seed", "output")}
    if job.get("peer"):
        return
    _warm_up_gpu(job, warmed)
    method = json.dumps([data, job.get("task")], sort_keys=True)
    if method in warmed:
        return
    warmed.add(method)
    if (data.get("budget") or {}).get("time"):
        data["budget"] = data["budget"] | {"time": 1.0}
    for family, sizes in _WARM_UP_PROBLEMS.items():
        carry_out({**job, "data": data | {"problem": {"generator": family} | sizes}})


def _warm_up_gpu(job: Mapping[str, Any], warmed: set[str]) -> None:
    """Carry out a GPU job without a time budget once before, if it is the first of its case."""
    data = job["data"]
    case = json.dumps([{**data, "seed": 0, "problem": {**data["problem"], "seed": 0}}, job.get("task")], sort_keys=True)
    if data.get("device") == "cuda" and not (data.get("budget") or {}).get("time") and case not in warmed:
        warmed.add(case)
        carry_out(job)


def _line(error: BaseException) -> str:
    """Return an error as one line of text."""
    text = " ".join(str(error).split())[:500]
    return text if isinstance(error, DmcmcError) else f"{type(error).__name__}: {text}"


def _solved(job: Mapping[str, Any], world: World) -> dict[str, Any] | None:
    """Carry out a job and return its record; None on ranks other than 0.

    The job's ``peer`` and ``task`` decide who computes what: another solver, the largest bucket, marginals, or dmcmc.
    """
    config = config_of(Document("", dict(job["data"])))
    problem = world.on_first_rank(lambda: problem_of(config.problem))
    size = {"agents": problem.n_agents, "variables": problem.n_variables, "factors": len(problem.factors)}
    if job.get("peer"):
        return {**_by_peer(job, problem), **size} if world.rank == 0 else None
    if job.get("task") == "bucket":
        return {**largest_bucket(problem, config), **size} if world.rank == 0 else None
    if job.get("task"):
        return {**_marginals(problem, config, job["task"]), **size} if world.rank == 0 else None
    from dmcmc.run.algorithms.choose_algorithm import solve

    result = solve(problem, config, world)
    return None if result is None else {**record_of(result), **size}


def _marginals(problem: Problem, config: Config, task: Literal["mar", "max-marginals"]) -> dict[str, Any]:
    """Compute all marginals and return the record; the objective is ln Z, or the best utility.

    ``time`` is that of messages and tables; building the junction tree is in ``planning``.
    """
    from dmcmc.run.whole_problem.marginals import marginals

    computed = marginals(problem, config, task)
    total = computed.ln if task == "mar" else computed.objective
    return {
        "outcome": "done",
        "status": computed.status,
        "objective": total,
        "bound": None,
        "violation": 0,
        "sense": problem.sense,
        "time": computed.time - computed.planning,
        "planning": computed.planning,
        "cliques": computed.cliques,
        "width": computed.width,
        "cells": computed.cells,
        "trace": [],
    }


def _by_peer(job: Mapping[str, Any], problem: Any) -> dict[str, Any]:
    """Let another solver solve the problem, evaluate its answer, and return the record."""
    seconds = job.get("seconds") or (job["data"].get("budget") or {}).get("time") or 60.0
    answer = PEERS[job["peer"]].solve(problem, seconds, job["data"].get("seed", 0))
    quality = None if answer.values is None else quality_of(problem, answer.values)
    objective = None if quality is None or quality.negated_violation else quality.objective
    proven = answer.bound is not None and answer.bound == objective
    status = "infeasible" if answer.infeasible else "optimal" if proven else "feasible" if objective is not None else ""
    return {
        "outcome": "done",
        "status": status or "timeout",
        "objective": objective,
        "bound": answer.bound,
        "gap": gap_of(objective, answer.bound),
        "violation": None if quality is None else -quality.negated_violation,
        "sense": problem.sense,
        "time": answer.time,
        "trace": thinned(answer.trace),
    }


def record_of(result: Result) -> dict[str, Any]:
    """Return the record of a result."""
    plain = json.loads(result.to_json())
    trace = [(p["time"], p["objective"], p["bound"]) for p in plain["trace"]]
    fields = {name: plain[name] for name in _FIELDS}
    methods = sorted({agent["method"] for agent in plain["agents"]})
    return {
        "outcome": "done",
        **fields,
        "cycle": plain["cycle"],
        "device": plain["provenance"].get("device"),
        "methods": methods,
        "trace": thinned(trace),
    }


def thinned(trace: list[tuple[float, Any, Any]]) -> list[list[Any]]:
    """Return at most 200 points of a trace (seconds, objective, bound), always with the last one."""
    step = max(1, -(-len(trace) // _MAX_POINTS))
    return [[round(t, 6), objective, bound] for t, objective, bound in trace[::-1][::step][::-1]]


def elapsed(since: float) -> float:
    """Return the wall-clock seconds since a time of ``time.perf_counter``, rounded to milliseconds."""
    return round(time.perf_counter() - since, 3)
