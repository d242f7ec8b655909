"""A child process of ``dmcmc warm-up``: it compiles kernels by calling them, by solving small problems, or by a run.

Without arguments it reads tasks from standard input: a JSON list with a name in :func:`tasks` and a device per line.
For each it writes a line of JSON when the kernels are compiled: the error, or null. With arguments it carries out that
command line of ``dmcmc``. It ends as soon as its standard input is closed, and thus with the process that started it.
"""

import json
import os
import queue
import runpy
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

import dmcmc
from dmcmc.compilation import gpu_components
from dmcmc.compilation.components import SearchVariant
from dmcmc.compilation.kernel_supply import compile_and_mark
from dmcmc.inference.bounds.semidefinite.cuda.node_arrays import relaxation_gpu_problem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.device import resolve_device
from dmcmc.samplers.auto.rates import load_rates, rates_file
from dmcmc.samplers.cuda.launch import shapes_of_domain

_MAX_ERROR_CHARACTERS = 200  # of the reason of a failure: several stand in one line
# Time limit in seconds of each run, which begins when its kernels are compiled: so short that tables may be unfinished
# and all improvers start.
_SECONDS = 0.02
_MEETINGS: Mapping[str, Any] = {"agents": 3, "variables_per_agent": 14, "domain_size": 6, "seed": 1}
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "fixed work": {"memory": "4GiB"},  # larger mini-buckets compile nothing more, and took 35 seconds on a large host
    "a time budget": {"timeout": _SECONDS},
    "a time budget, branch and bound": {"timeout": _SECONDS, "search": "branch-and-bound"},
    "Gibbs sampling": {"timeout": _SECONDS, "method": "gibbs"},
    "mini-buckets": {"combine": {"method": "mini-bucket", "z": 2}},
}
# Functions that compile kernels by calling them, and kernel sets, the dearest first. They share few kernels, so that
# several processes compile different ones at the beginning; problems are solved with what they have compiled, and
# compile the rest.
_FUNCTIONS = {
    "speed measurements": "dmcmc.samplers.auto.rates:load_rates",
    "constraint search": "dmcmc.compilation.components:compile_constraint_search",
    "elimination orders": "dmcmc.inference.orders.best_order:ORDER_SEARCH",
    "bounds of rows": "dmcmc.inference.bounds.search_rows:BOUNDARY_SEARCH",
    "branch and bound": "dmcmc.samplers.branch_and_bound.engine:compile_search",
    "orders of subtrees": "dmcmc.inference.orders.reorder_subtrees:SUBTREE_ORDERS",
    "mini-bucket bounds": "dmcmc.inference.bounds.mini_bucket:MINI_BUCKET_BOUNDS",
    "rounding": "dmcmc.inference.bounds.dual.rounding:ROUNDING_KERNELS",
    "semidefinite bounds": "dmcmc.inference.bounds.semidefinite.relaxation:RELAXATION_KERNELS",
}
# Columns of the tables whose kernels of the dual ascent on a GPU are compiled: multiples of 8, for domains with up to
# that many values. All multiples up to 136 took 80 seconds more on an H100 host with 16 cores (2026-11-27).
_GPU_TABLE_WIDTHS = (96, 64, 48, 32, 24, 16, 8)
_GPU_BOUNDS = ("branch and bound", "dual ascent of graphs", "dual ascent of rows")  # each with one kernel per width
_GPU_NUMBERS = ("int32", "int64", "float64")  # number types of tables that are eliminated on a GPU
# Sizes of domains whose semidefinite relaxations and Gibbs sampling on a GPU are compiled: those of the generators'
# usual problems, and the largest of the DMCMC paper's.
_GPU_DOMAINS = (24, 12, 10)
_GPU_SAMPLED_DOMAINS = (96, *_GPU_DOMAINS)
GPU_STAGES = 4  # places of the columns in a GPU's memory, each with its kernel (`samplers.cuda.gibbs_kernels.STAGES`)


def tasks() -> dict[str, Callable[[str], object]]:
    """Return the functions that compile all kernels for a device, by name, in the order in which they are started."""
    found: dict[str, Callable[[str], object]] = {name: partial(_call, text) for name, text in _FUNCTIONS.items()}
    on_gpu: dict[str, Callable[[], Sequence[KernelSet]]] = {
        f"elimination, {dtype}": partial(_gpu_elimination, dtype) for dtype in _GPU_NUMBERS
    }
    for (number, name), width in product(enumerate(_GPU_BOUNDS), _GPU_TABLE_WIDTHS):
        on_gpu[f"{name}, tables of {width} columns"] = partial(_gpu_bounds, number, width)
    for size, stage in product(_GPU_SAMPLED_DOMAINS, range(GPU_STAGES)):
        on_gpu[f"Gibbs sampling, domains of {size} values, stage {stage}"] = partial(_gpu_sampling, size, stage)
    on_gpu["local search"] = _gpu_search
    relaxed: dict[str, int | None] = {f"domains of {size} values": size for size in _GPU_DOMAINS}
    relaxed["large arrays"] = None
    for name, sets in on_gpu.items():
        found[f"{name}, on a GPU"] = partial(_compile_for_gpu, sets, False)
    for name, domain in relaxed.items():
        relaxations = partial(_gpu_relaxations, domain)
        found[f"semidefinite bounds, {name}, on a GPU"] = partial(_compile_for_gpu, relaxations, True)
    solved = {
        f"{problem}, {settings}": partial(_solve, problem, settings)
        for settings, problem in product(_SETTINGS, _PROBLEMS)
    }
    # Problems take up to 30 seconds with fixed work; they begin when the kernels that they share are being compiled.
    dearest = [name for name in found if name in _FUNCTIONS or name.startswith(("elimination", "branch and bound"))]
    dearest += [name for name in solved if name.endswith("fixed work")]
    every = found | solved
    return {name: every[name] for name in dearest} | every


def _call(function: str, device: str) -> None:
    """Call a function or compile a kernel set, given as ``module:name``, for the CPU, whatever the device."""
    module, name = function.split(":")
    found = getattr(import_module(module), name)
    if isinstance(found, KernelSet):
        compile_and_mark(found)
    else:
        found()


def _compile_for_gpu(sets: Callable[[], "Sequence[KernelSet]"], relaxes: bool, device: str) -> None:
    """Compile kernel sets for a GPU, if there is one; those of relaxations, if they can be computed on it."""
    if resolve_device(device) == "cuda" and not (relaxes and relaxation_gpu_problem() is not None):
        for kernels in sets():
            compile_and_mark(kernels)


def _gpu_bounds(number: int, width: int) -> "Sequence[KernelSet]":
    """Return the kernel with some number of those of bounds for tables of some width."""
    return [[gpu_components.branch_and_bound(width), *gpu_components.dual_ascent(width)][number]]


def _gpu_sampling(size: int, stage: int) -> "Sequence[KernelSet]":
    """Return the kernel of Gibbs sampling for domains of some size and a place of the columns in memory."""
    return [gpu_components.gibbs_sampling(shapes_of_domain(size)[stage])]


def _gpu_search() -> "Sequence[KernelSet]":
    """Return the kernels of the local search, without and with hard constraints."""
    return [gpu_components.search(SearchVariant(np.dtype(np.int32), True, compact)) for compact in (True, False)]


def _gpu_elimination(name: str) -> "Sequence[KernelSet]":
    """Return the kernels of exact elimination with a number type, and of mini-buckets if it is a type of integers."""
    dtype: np.dtype[Any] = np.dtype(name)
    joins = [gpu_components.joins(dtype)]
    return [*joins, gpu_components.matched_mini_buckets(dtype)] if dtype.kind == "i" else joins


def _gpu_relaxations(size: int | None) -> "Sequence[KernelSet]":
    """Return the kernels of semidefinite relaxations for domains of some size; None: those of large arrays."""
    return [
        gpu_components.large_relaxations(Backend("cuda"))
        if size is None
        else gpu_components.relaxations(size, Backend("cuda"))
    ]


def _solve(problem: str, settings: str, device: str) -> None:
    """Solve a small problem, given the names of the problem and the settings."""
    dmcmc.solve(_PROBLEMS[problem](), device=device, **{"search": "none", **_SETTINGS[settings]})


def _measure_again(device: str) -> None:
    """Replace the rates of this machine, which were measured while other processes used its cores."""
    path = rates_file()
    if path is not None:
        path.unlink(missing_ok=True)
    load_rates()


def _meetings(**parameters: Any) -> "Problem":
    """Return a meeting-scheduling problem."""
    return dmcmc.generate("meeting-scheduling", **_MEETINGS, **parameters)


def _one_agent() -> "Problem":
    """Return a problem of one agent with integer utilities."""
    return dmcmc.generate("random", agents=1, variables_per_agent=30, domain_size=4, local_density=0.4, seed=1)


def _one_variable_per_agent() -> "Problem":
    """Return a random problem whose agents' union is bounded and searched in a run with a time budget."""
    return dmcmc.generate("random-network", nodes=25, domain_size=10, density=0.4, tightness=0, seed=1)


def _one_agent_with_probabilities() -> "Problem":
    """Return a problem of one agent with fractional utilities."""
    problem = _one_agent()
    return replace(problem, factors=tuple(map(_as_logarithms, problem.factors)))


def _as_logarithms(factor: "Factor") -> "Factor":
    """Return a factor with fractional utilities, as logarithms of probabilities are."""
    return Factor.of(factor.scope, -0.1 * factor.table)


# Small problems that need different kernels; neighbours differ most, because they are solved at the same time.
_PROBLEMS: Mapping[str, Callable[[], "Problem"]] = {
    "meetings": _meetings,
    "one variable per agent": _one_variable_per_agent,
    "one agent": _one_agent,
    "one agent, probabilities": _one_agent_with_probabilities,
    "meetings with constraints": lambda: _meetings(tables="hard"),
}
MEASURE = "measuring the speed of this machine"
"""Name of the task that measures this machine when nothing else is running."""


def main() -> None:
    """Carry out a command line, or compile what standard input asks for."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    if len(sys.argv) > 1:
        sys.argv[0] = "dmcmc"
        runpy.run_module("dmcmc", run_name="__main__")
        return
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the output of libraries is discarded
    known = {**tasks(), MEASURE: _measure_again}
    while True:
        error = None
        try:
            name, device = json.loads(lines.get())
            known[name](device)
        except Exception as failure:
            error = " ".join(f"{type(failure).__name__}: {failure}".split())[:_MAX_ERROR_CHARACTERS]
        print(json.dumps(error), file=answers, flush=True)


def _read(lines: "queue.SimpleQueue[str]") -> None:
    """Read standard input in a thread; end the process when it is closed."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(1)


if __name__ == "__main__":
    main()
