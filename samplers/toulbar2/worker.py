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

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


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
    scopes = np.split(parts["scope"], np.cumsum(parts["arity"])[:-1])
    costs = np.split(parts["cost"], np.cumsum(parts["size"])[:-1])
    for scope, cost in zip(scopes, costs, strict=True):
        if scope.size > 3 and cost.any():
            _add_tuples(network.CFN.wcsp, scope, cost, domains)
        elif scope.size:
            network.AddFunction(scope.tolist(), cost.tolist())
    if parts["group"].size:
        for pairs in np.split(parts["pair"], np.cumsum(parts["group"])[:-1]):
            network.AddGeneralizedLinearConstraint([(v, x, 1) for v, x in pairs.tolist()], "<=", 1)


def _add_tuples(network: Any, scope: "np.ndarray[Any, Any]", cost: "np.ndarray[Any, Any]", domains: Any) -> None:
    """Add a cost function of high arity by its nonzero tuples: toulbar2's own method goes through all entries."""
    indices = np.flatnonzero(cost)
    tuples = np.stack(np.unravel_index(indices, tuple(domains[scope])), axis=1).tolist()
    number = network.postNaryConstraintBegin(scope.tolist(), 0, len(tuples))
    for values, tuple_cost in zip(tuples, cost[indices].tolist(), strict=True):
        network.postNaryConstraintTuple(number, values, tuple_cost)
    network.postNaryConstraintEnd(number)


if __name__ == "__main__":
    main()
