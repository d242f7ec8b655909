"""The process that searches: reads jobs, lets toulbar2 print what it finds. Imports nothing of ours, so it starts fast.

A job is a line of JSON: ``{"file": ..., "top": ..., "seconds": ...}``; its answer ends with a line ``done`` and why:
``complete`` (nothing is cheaper than the last solution printed, or than ``top``) or ``limit``.
"""

import json
import resource
import sys

import numpy as np


def main() -> None:
    """Search one job after the other, within so many bytes of address space (0: no limit)."""
    memory = int(sys.argv[1])
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    import pytoulbar2

    for line in sys.stdin:
        job = json.loads(line)
        network = pytoulbar2.CFN(ubinit=job["top"], seed=1, verbose=0)
        try:
            _load(network, job["file"])
            network.Solve(showSolutions=1, timeLimit=job["seconds"])
        except pytoulbar2.tb2.Contradiction:
            pass  # propagation alone proves it
        print("\ndone", flush=True)


def _load(network: "object", file: str) -> None:
    """Add the variables and cost functions of a file."""
    with np.load(file, allow_pickle=False) as arrays:
        parts = {name: arrays[name] for name in arrays.files}
    for v, size in enumerate(parts["domains"].tolist()):
        network.AddVariable(f"x{v}", range(size))  # type: ignore[attr-defined]
    scopes = np.split(parts["scope"], np.cumsum(parts["arity"])[:-1])
    costs = np.split(parts["cost"], np.cumsum(parts["size"])[:-1])
    for scope, cost in zip(scopes, costs, strict=True):
        if scope.size:
            network.AddFunction(scope.tolist(), cost.tolist())  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
