"""One job of an experiment, and the bucket of its instance.

Carry out one run of an experiment, and make the record that the journal keeps of it.

A *job* is a mapping with the keys ``data`` (the complete configuration), ``peer`` (name of another solver that solves
the problem, or None for dmcmc), ``seconds`` (time limit of that solver, or None) and ``task`` (``mar``,
``max-marginals``, ``bucket``, or None to find an assignment). It is sent to worker processes as JSON.

A *record* is a mapping: ``outcome`` (``done``, ``failed`` or ``out of memory``) with ``error``, or with ``status``,
``objective``, ``bound``, ``violation``, ``sense``, ``time`` and ``time_compiling`` in seconds, ``trace``, ``course``
(the measures of an algorithm after some cycles) and the sizes of the problem. Objective and bound are in the problem's
own sense.

The experiment task ``bucket``: time the largest bucket of a bucket elimination alone (GpuBE, Figure 10).

A bucket is one elimination step: its tables are joined, and one variable is maximised out.
"""

import json
import time
from collections.abc import Mapping
from statistics import median
from typing import Any, Literal

import numpy as np

from dmcmc.algorithms import registry
from dmcmc.config.configuration import Config, config_of, problem_of
from dmcmc.experiments.journal import COURSE
from dmcmc.experiments.peers import PEERS
from dmcmc.files.document import Document
from dmcmc.inference.elimination.plan import plan_elimination, plan_flat
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import DmcmcError, ResourceError
from dmcmc.inference.runtime.threads import cores
from dmcmc.mpi.world import World
from dmcmc.results.outcome import gap_of, quality_of
from dmcmc.results.result import Result

_MAX_ENTRY = 100  # table entries are drawn from 0 to this
_REPETITIONS = 5  # timed eliminations, after one that loads the kernels
# int32; −2^29 stands for −∞, so that the sum of four of them still fits; finite sums have magnitudes up to 2^27.
_ARITHMETIC = Arithmetic(np.dtype(np.int32), -(2**29), 2**27)


def largest_bucket(problem: Problem, config: Config) -> dict[str, Any]:
    """Eliminate the variable of the largest joined table several times and return the record with the median time.

    The entries of its tables are drawn at random, since the work does not depend on them. The objective is the largest
    entry of the message, which is the same on every device. ``cells`` is the number of entries of the joined table, and
    ``width`` the number of variables of the message (the separator).

    Parameters
    ----------
    problem
        The problem; only its scopes and domain sizes matter.
    config
        The device, the seed of the entries, and the memory limit ``budget.memory``.

    Raises
    ------
    ResourceError
        If the tables do not fit ``budget.memory``.
    """
    dense = densify(problem, config.budget.bytes).problem
    scopes = dense.flat.scopes()
    order = best_order(scopes, dense.domains, range(dense.n_variables))
    full_plan = plan_elimination(scopes, dense.domains, order.variables)
    bucket = int(np.argmax(full_plan.program.cells))
    inputs, separator = full_plan.inputs(bucket), full_plan.scope(full_plan.output(bucket))
    entries = sum(int(full_plan.sizes[t]) for t in (*inputs, full_plan.output(bucket)))
    # Factor 3: an allowance for the tables as drawn, their concatenated copy, and the elimination's working memory.
    if 3 * _ARITHMETIC.dtype.itemsize * entries > config.budget.bytes:
        raise ResourceError(f"the largest bucket has {entries} table entries, more than budget.memory allows")
    rng = np.random.default_rng(config.seed)
    tables = [rng.integers(0, _MAX_ENTRY, full_plan.shape(t), dtype=np.int32, endpoint=True) for t in inputs]
    flat = flatten([full_plan.scope(t) for t in inputs], tables, _ARITHMETIC.dtype)
    variable = int(full_plan.program.variable[bucket])
    plan = plan_flat(flat.scope_start, flat.scope, full_plan.program.domains, [variable], separator)
    backend, seconds, best = Backend.of(config.device, cores()), list[float](), 0
    for _ in range(_REPETITIONS + 1):  # the first one loads the kernels
        begun = time.perf_counter()
        eliminated = backend.eliminate(flat, plan, _ARITHMETIC)
        best = int(eliminated.table(plan.output(0)).values.max())
        seconds.append(time.perf_counter() - begun)
    return {
        "outcome": "done",
        "status": "optimal",
        "objective": best,
        "bound": best,
        "violation": 0,
        "sense": problem.sense,
        "time": median(seconds[1:]),
        "cells": int(full_plan.program.cells[bucket]),
        "width": len(separator),
        "trace": [],
    }


_MAX_POINTS = 200  # points of a trace in a record; enough for a chart
# Small problems: parameters by name of the generator. Together they compile the kernels of all kinds of factors.
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
    "time_compiling",
    "simulated_time",
    "msg_count",
    "msg_size",
)


def carry_out(job: Mapping[str, Any], world: World | None = None) -> dict[str, Any] | None:
    """Carry out a job; errors become part of the record, except those that end a process.

    Parameters
    ----------
    job
        ``data``, ``peer``, ``seconds`` and ``task``, as described above.
    world
        The MPI ranks that solve it together; one rank by default. A peer runs on rank 0 only.

    Returns
    -------
    dict or None
        The record; None on ranks other than 0.
    """
    try:
        return _solved(job, world or World())
    except (ResourceError, MemoryError) as error:
        return {"outcome": "out of memory", "error": _line(error)}
    except Exception as error:  # a failure is a result
        return {"outcome": "failed", "error": _line(error)}


def warm_up(job: Mapping[str, Any], warmed: set[str]) -> None:
    """Compile the kernels of a job before the time of the run starts, so that methods are compared fairly.

    Two small problems are solved, once per method. A job with a time budget has one second for each, which begins when
    their kernels are compiled. The kernels of a GPU depend on the problem's shape, so a GPU job without a time budget
    is carried out twice in the first run of a case. Peers compile nothing here.

    Parameters
    ----------
    job
        The job that follows.
    warmed
        Methods and cases (as JSON) whose kernels this process has compiled; those of this job are added.
    """
    # The kernels depend on the method only, so the problem, the seed and the output file do not matter.
    data = {name: part for name, part in job["data"].items() if name not in ("problem", "seed", "output")}
    if job.get("peer"):
        return
    _warm_up_gpu(job, warmed)
    _warm_up_method(job, data, warmed)


def _warm_up_method(job: Mapping[str, Any], data: dict[str, Any], warmed: set[str]) -> None:
    """Solve two small problems with a job's method, if it is the first of this method; plug-ins compile nothing here.

    ``data`` is the configuration without its problem, seed and output.
    """
    method = json.dumps([data, job.get("task")], sort_keys=True)
    algorithm = config_of(Document("", {**data, "problem": job["data"]["problem"]})).algorithm_settings.name
    if method in warmed or not (algorithm == registry.OWN or registry.is_built_in(algorithm)):
        return
    warmed.add(method)
    if (data.get("budget") or {}).get("time"):
        data["budget"] = data["budget"] | {"time": 1.0}
    for family, sizes in _WARM_UP_PROBLEMS.items():
        carry_out({**job, "data": data | {"problem": {"generator": family} | sizes}})


def _warm_up_gpu(job: Mapping[str, Any], warmed: set[str]) -> None:
    """Carry out a GPU job without a time budget once before, if it is the first of its case.

    A case is a configuration without its seeds. ``warmed`` holds the cases carried out so far, as JSON.
    """
    data = job["data"]
    case = json.dumps([{**data, "seed": 0, "problem": {**data["problem"], "seed": 0}}, job.get("task")], sort_keys=True)
    if data.get("device") == "cuda" and not (data.get("budget") or {}).get("time") and case not in warmed:
        warmed.add(case)
        carry_out(job)


def _line(error: BaseException) -> str:
    """Return an error as one line of at most 500 characters; errors of other libraries with their type."""
    text = " ".join(str(error).split())[:500]
    return text if isinstance(error, DmcmcError) else f"{type(error).__name__}: {text}"


def _solved(job: Mapping[str, Any], world: World) -> dict[str, Any] | None:
    """Carry out a job and return its record; None on ranks other than 0.

    The job's ``peer`` and ``task`` decide who computes what: another solver, the largest bucket of an elimination,
    marginals, or dmcmc on all ranks.
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
    from dmcmc.algorithms.choice.choose_algorithm import solve_as_configured

    result = solve_as_configured(problem, config, world)
    return None if result is None else {**record_of(result), **size}


def _marginals(problem: Problem, config: Config, task: Literal["mar", "max-marginals"]) -> dict[str, Any]:
    """Compute all marginals and return the record; the objective is ln Z (``mar``), or the best objective.

    ``time`` is that of messages and tables; building the junction tree is in ``planning``.
    """
    from dmcmc.questions.sums import marginals

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
    """Let another solver solve the problem, evaluate its answer, and return the record.

    The time limit is ``seconds`` of the job, else ``budget.time`` of the configuration, else 60 seconds. ``objective``
    is None if the answer breaks a hard constraint; ``violation`` is None without an assignment. The status is
    ``optimal`` if the peer's bound equals the objective, and ``timeout`` if there is no valid assignment.
    """
    # The record needs a limit also if neither the method nor the configuration has one: 60 seconds.
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
    """Return the record of a result of dmcmc."""
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
        "course": [[point[name] for name in COURSE] for point in last_of_each(plain["course"], _MAX_POINTS)],
    }


def thinned(trace: list[tuple[float, Any, Any]]) -> list[list[Any]]:
    """Return at most 200 points of a trace, always with the last one: every k-th point, counted from the end.

    A point is (seconds, objective, bound); seconds are rounded to microseconds.
    """
    return [[round(t, 6), objective, bound] for t, objective, bound in last_of_each(trace, _MAX_POINTS)]


def last_of_each(points: list[Any], parts: int) -> list[Any]:
    """Return the last point of each of at most so many equal parts of a list."""
    step = max(1, -(-len(points) // parts))
    return points[::-1][::step][::-1]


def elapsed(since: float) -> float:
    """Return the wall-clock seconds since ``since``, a time of ``time.perf_counter``, rounded to milliseconds."""
    return round(time.perf_counter() - since, 3)
