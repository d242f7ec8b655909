"""Run toulbar2 on problems of this project, in a separate process, and return what it finds and proves, and when."""

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import dmcmc
from dmcmc.samplers.toulbar2.background_search import Toulbar2Process
from dmcmc.samplers.toulbar2.compact_problem import costs_of_problem

SEARCH = """
import sys, dmcmc, pytoulbar2
problem = dmcmc.load(sys.argv[1])
top = sum(int(f.table.max()) for f in problem.factors)
worst = sum(int(f.table.max()) - int(f.table.min()) for f in problem.factors)
network = pytoulbar2.CFN(ubinit=worst + 1, vns=-4 if sys.argv[3] == "vns" else None, verbose=0)
for name, size in zip(problem.variables, problem.domains.tolist()):
    network.AddVariable(name, range(size))
for f in problem.factors:
    network.AddFunction(list(f.scope), (int(f.table.max()) - f.table).ravel().tolist())
print("TOP", top, flush=True)
network.Solve(timeLimit=int(sys.argv[2]))
"""
_SECONDS_PATTERN = r"([\d.]+) seconds\)"


class Toulbar2Result(NamedTuple):
    """The result of a search by toulbar2 alone.

    Attributes
    ----------
    objective : float or None
        In the problem's own sense.
    proven : bool
        Whether toulbar2 has proven that the objective is optimal.
    seconds : float
        Wall-clock seconds from the conversion of the tables to the end.
    """

    objective: float | None
    proven: bool
    seconds: float


def search_alone(path: Path, seconds: float) -> Toulbar2Result:
    """Let toulbar2 search any problem on one core, without an initial solution or bound."""
    problem = dmcmc.load(path)
    start = time.perf_counter()
    costs = costs_of_problem(problem, 4 << 30, constants=False)
    with Toulbar2Process() as engine:
        found = engine.search(costs, None, seconds)
    elapsed = time.perf_counter() - start
    objective = None if found.values is None else problem.evaluate(found.values[: problem.n_variables]).objective
    return Toulbar2Result(None if objective is None else float(objective), found.complete, elapsed)


class Toulbar2Point(NamedTuple):
    """The objective and the bound after some seconds of toulbar2's own clock."""

    seconds: float
    objective: float | None
    bound: float | None


def search(path: Path, method: str, seconds: int) -> list[Toulbar2Point]:
    """Let toulbar2 search a problem of whole utilities on one core; return the trace of its solutions and bounds.

    Parameters
    ----------
    path : Path
        The problem file.
    method : str
        ``hbfs`` (hybrid best-first search: objective and bound) or ``vns`` (variable neighbourhood search: objective).
    seconds : int
        Time limit by toulbar2's own clock.
    """
    command = [sys.executable, "-c", SEARCH, str(path), str(seconds), method]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 * seconds + 300)
    found = re.search(r"^TOP (-?\d+)", done.stdout, re.MULTILINE)
    if found is None:
        sys.exit(f"toulbar2 failed on {path}: {done.stderr[-500:]}")
    top, trace = int(found[1]), list[Toulbar2Point]()
    objective: float | None = None
    bound: float | None = None
    for line in done.stdout.splitlines():
        if new := re.match(rf"New solution: (\d+) \(.*?{_SECONDS_PATTERN}", line):
            objective = top - int(new[1])
            trace.append(Toulbar2Point(float(new[2]), objective, bound))
        elif method == "hbfs" and (gap_line := re.match(rf"Optimality gap: \[(\d+), \d+\].*?{_SECONDS_PATTERN}", line)):
            bound = top - int(gap_line[1])
            trace.append(Toulbar2Point(float(gap_line[2]), objective, bound))
    return trace
