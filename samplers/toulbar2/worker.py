"""The toulbar2 search process: reads jobs from standard input and lets toulbar2 print what it finds.

``process.py`` starts it as a script. It imports no module of dmcmc, so that it starts fast.

A job is a line of JSON, ``{"bytes": ..., "top": ..., "seconds": ...}``, followed by that number of bytes of a NumPy
archive (``CostProblem.save``). ``top`` is the cost to beat and ``seconds`` the time limit. The answer ends with a line
``done``. The process ends with its parent, however the parent ends.
"""

import ctypes
import io
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_MAX_TABLE_ARITY = 3  # toulbar2 stores cost functions over more variables as lists of tuples

_Array = NDArray[Any]


def main() -> None:
    """Search one job after the other within a memory limit in bytes besides the libraries (0: no limit)."""
    memory, parent = int(sys.argv[1]), int(sys.argv[2])
    _die_with(parent)
    sys.modules["mpi4py"] = None  # type: ignore[assignment]  # toulbar2 would join the ranks of an MPI run
    import pytoulbar2

    if memory:
        limit = _mapped_bytes() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    jobs = sys.stdin.buffer
    while line := jobs.readline():
        job = json.loads(line)
        data = jobs.read(job["bytes"])
        network = pytoulbar2.CFN(ubinit=job["top"], seed=1, verbose=0)
        try:
            _load(network, data)
            del data
            network.Solve(showSolutions=1, timeLimit=job["seconds"])
        except pytoulbar2.tb2.Contradiction:
            pass  # propagation alone proves infeasibility
        print("\ndone", flush=True)


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


def _load(network: Any, data: bytes) -> None:
    """Add the variables and cost functions of a NumPy archive to a network."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        parts = {name: arrays[name] for name in arrays.files}
    domains = parts["domains"]
    for v, size in enumerate(domains.tolist()):
        network.AddVariable(f"x{v}", range(size))
    for scope, cost in zip(_split(parts["scope"], parts["arity"]), _split(parts["cost"], parts["size"]), strict=True):
        if scope.size > _MAX_TABLE_ARITY and cost.any():
            _add_wide_table(network.CFN.wcsp, scope, cost, domains)
        elif scope.size:
            network.AddFunction(scope.tolist(), cost.tolist())
    arity, tuples = parts["listed_arity"], parts["listed_tuples"]
    for scope, values, costs in zip(
        _split(parts["listed_scope"], arity),
        _split(parts["listed_value"], tuples * arity),
        _split(parts["listed_cost"], tuples + 1),
        strict=True,
    ):
        _add_tuples(network.CFN.wcsp, scope, values.reshape(-1, scope.size), costs[:-1], int(costs[-1]))
    for terms, minimum in zip(_split(parts["term"], parts["terms"]), parts["minimum"].tolist(), strict=True):
        network.AddGeneralizedLinearConstraint([tuple(term) for term in terms.tolist()], ">=", minimum)


def _split(array: _Array, sizes: _Array) -> list[_Array]:
    """Return consecutive parts of an array with the given sizes."""
    return np.split(array, np.cumsum(sizes)[:-1]) if sizes.size else []


def _add_wide_table(network: Any, scope: _Array, cost: _Array, domains: _Array) -> None:
    """Add a table over many variables by its tuples: those whose cost is not the most frequent one, the default."""
    distinct, counts = np.unique(cost, return_counts=True)
    default = int(distinct[counts.argmax()])
    indices = np.flatnonzero(cost != default)
    tuples = np.stack(np.unravel_index(indices, tuple(domains[scope])), axis=1)
    _add_tuples(network, scope, tuples, cost[indices], default)


def _add_tuples(network: Any, scope: _Array, tuples: _Array, costs: _Array, default: int) -> None:
    """Add a cost function given by tuples and the cost of all others."""
    number = network.postNaryConstraintBegin(scope.tolist(), default, len(tuples))
    for values, cost in zip(tuples.tolist(), costs.tolist(), strict=True):
        network.postNaryConstraintTuple(number, values, cost)
    network.postNaryConstraintEnd(number)


if __name__ == "__main__":
    main()
