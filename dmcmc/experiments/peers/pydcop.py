"""pyDCOP's algorithms as peers: one variable an agent, a thread each, in a process of their own."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dmcmc.experiments.peers.contract import Answer
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ResourceError, Unavailable
from dmcmc.samplers.toulbar2.costs import costs_of

_MEMORY = 2 << 30
_GRACE = 60.0  # seconds that it may take to begin and to end
_PROCESS = Path(__file__).with_name("pydcop_process.py")


def solver_of(algorithm: str) -> Callable[[Problem, float, int], Answer]:
    """Return what solves a problem by one of pyDCOP's algorithms (``dsa``, ``mgm``, ``mgm2``)."""

    def solve(problem: Problem, seconds: float, seed: int) -> Answer:
        """Let pyDCOP work until the time is over; it has no bounds and no trace.

        Raises
        ------
        Unavailable
            If pyDCOP is not installed, or does not work here.
        ResourceError
            If it does not end.
        """
        if find_spec("pydcop") is None:
            raise Unavailable(f"peer pydcop-{algorithm}: pyDCOP is not installed; pip install 'dmcmc[pydcop]'")
        dense = densify(problem, _MEMORY).problem
        costs = costs_of([f.scope for f in dense.factors], [f.table for f in dense.factors], dense.domains)
        if not costs.feasible:
            return Answer(None, None, True, 0.0, [])
        tables = [(list(map(int, scope)), table) for scope, table in zip(costs.scopes, costs.costs, strict=True)]
        shaped = [(scope, table.reshape([int(costs.domains[v]) for v in scope]).tolist()) for scope, table in tables]
        asked = {"domains": costs.domains.tolist(), "tables": shaped, "algorithm": algorithm, "seconds": seconds}
        begun = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(_PROCESS)],  # not this folder: this file has its name
                input=json.dumps(asked | {"seed": seed}) + "\n",
                capture_output=True,
                text=True,
                timeout=seconds + _GRACE,
            )
        except subprocess.TimeoutExpired:
            raise ResourceError(f"peer pydcop-{algorithm}: has not ended {_GRACE:g} s after its time") from None
        took = time.perf_counter() - begun
        if done.returncode or not done.stdout:
            why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise Unavailable(f"peer pydcop-{algorithm}: pyDCOP does not work here: {why}")
        values = json.loads(done.stdout)
        found = None if values is None else np.array(values[: problem.n_variables], dtype=np.int64)
        return Answer(found, None, False, took, [])

    return solve
