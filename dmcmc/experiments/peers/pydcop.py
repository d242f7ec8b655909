"""pyDCOP's algorithms as peers: one agent and one thread per variable, in a separate process."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dmcmc.experiments.peers.contract import PeerAnswer
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ResourceError, Unavailable
from dmcmc.samplers.toulbar2.costs import costs_of

_MAX_TABLE_BYTES = 2 << 30  # bytes of the problem's cost tables
_OVERHEAD_SECONDS = 60.0  # for pyDCOP to start and to end, in addition to the time limit
_SCRIPT = Path(__file__).with_name("pydcop_process.py")


def solver_of(algorithm: str) -> Callable[[Problem, float, int], PeerAnswer]:
    """Return a solver for one of pyDCOP's algorithms (``dsa``, ``mgm``, ``mgm2``)."""

    def solve(problem: Problem, seconds: float, seed: int) -> PeerAnswer:
        """Run pyDCOP until the time limit; it gives no bounds and no trace.

        Raises
        ------
        Unavailable
            If pyDCOP is not installed or fails.
        ResourceError
            If it does not end after the time limit.
        """
        if find_spec("pydcop") is None:
            raise Unavailable(f"peer pydcop-{algorithm}: pyDCOP is not installed; pip install 'dmcmc[pydcop]'")
        dense = densify(problem, _MAX_TABLE_BYTES).problem
        costs = costs_of([f.scope for f in dense.factors], [f.table for f in dense.factors], dense.domains)
        if not costs.feasible:
            return PeerAnswer(None, None, True, 0.0, [])
        tables = [(list(map(int, scope)), table) for scope, table in zip(costs.scopes, costs.costs, strict=True)]
        cost_tables = [
            (scope, table.reshape([int(costs.domains[v]) for v in scope]).tolist()) for scope, table in tables
        ]
        request = {"domains": costs.domains.tolist(), "tables": cost_tables, "algorithm": algorithm, "seconds": seconds}
        begun = time.perf_counter()
        try:
            process = subprocess.run(
                [sys.executable, "-P", str(_SCRIPT)],  # -P: otherwise ``import pydcop`` would find this file
                input=json.dumps(request | {"seed": seed}) + "\n",
                capture_output=True,
                text=True,
                timeout=seconds + _OVERHEAD_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise ResourceError(
                f"peer pydcop-{algorithm}: did not end within {_OVERHEAD_SECONDS:g} s after its time limit"
            ) from None
        solver_seconds = time.perf_counter() - begun
        if process.returncode or not process.stdout:
            reason = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            raise Unavailable(f"peer pydcop-{algorithm}: pyDCOP failed: {reason}")
        values = json.loads(process.stdout)
        assignment = None if values is None else np.array(values[: problem.n_variables], dtype=np.int64)
        return PeerAnswer(assignment, None, False, solver_seconds, [])

    return solve
