"""toulbar2 on our problems, in a process of its own: what it finds and proves, and when."""

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import dmcmc
from dmcmc.samplers.toulbar2.search import Engine
from dmcmc.samplers.toulbar2.whole_problem import costs_of_problem

SEARCH = """
import sys, dmcmc, pytoulbar2
problem = dmcmc.load(sys.argv[1])
top = sum(int(f.table.max()) for f in problem.factors)
network = pytoulbar2.CFN(ubinit=top + 1, vns=-4 if sys.argv[3] == "vns" else None, verbose=0)
for name, size in zip(problem.variables, problem.domains.tolist()):
    network.AddVariable(name, range(size))
for f in problem.factors:
    network.AddFunction(list(f.scope), (int(f.table.max()) - f.table).ravel().tolist())
print("TOP", top, flush=True)
network.Solve(timeLimit=int(sys.argv[2]))
"""
_SECONDS = r"([\d.]+) seconds\)"


class Alone(NamedTuple):
    """What toulbar2 has found by itself, in the problem's own sense, and the seconds from its tables to its end."""

    objective: float | None
    proven: bool
    seconds: float


def alone(path: Path, seconds: float) -> Alone:
    """Let toulbar2 search any problem on one core, handed over as a run would; it is told nothing."""
    problem = dmcmc.load(path)
    start = time.perf_counter()
    costs = costs_of_problem(problem, 4 << 30, constants=False)
    with Engine() as engine:
        found = engine.search(costs, None, seconds)
    elapsed = time.perf_counter() - start
    objective = None if found.values is None else problem.evaluate(found.values[: problem.n_variables]).objective
    return Alone(None if objective is None else float(objective), found.complete, elapsed)


class Point(NamedTuple):
    """What is known after so many seconds of toulbar2's clock."""

    seconds: float
    objective: float | None
    bound: float | None


def search(path: Path, how: str, seconds: int) -> list[Point]:
    """Let toulbar2 search a problem of whole utilities, on one core.

    Parameters
    ----------
    how
        ``hbfs`` (objective and bound) or ``vns`` (objective).
    """
    command = [sys.executable, "-c", SEARCH, str(path), str(seconds), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 * seconds + 300)
    found = re.search(r"^TOP (\d+)", done.stdout, re.MULTILINE)
    if found is None:
        sys.exit(f"toulbar2 failed on {path.name}: {done.stderr[-500:]}")
    top, trace = int(found[1]), list[Point]()
    objective: float | None = None
    bound: float | None = None
    for line in done.stdout.splitlines():
        if new := re.match(rf"New solution: (\d+) \(.*?{_SECONDS}", line):
            objective = top - int(new[1])
            trace.append(Point(float(new[2]), objective, bound))
        elif how == "hbfs" and (shown := re.match(rf"Optimality gap: \[(\d+), \d+\].*?{_SECONDS}", line)):
            bound = top - int(shown[1])
            trace.append(Point(float(shown[2]), objective, bound))
    return trace
