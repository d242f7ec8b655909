"""Optima found by toulbar2."""

import json
import subprocess
import sys

import pytest

from support.naive import INFINITY, utilities

HARD = -INFINITY


def optimum(problem):
    """Return the best utility of an integer problem by toulbar2, −inf if it proves infeasibility."""
    pytoulbar2 = pytest.importorskip("pytoulbar2")
    offset, functions, top = 0, [], 1
    for factor in problem.factors:
        table = utilities(factor.table).ravel().tolist()
        if all(entry == HARD for entry in table):
            return HARD
        best = max(table)
        offset += best
        top += max(best - entry for entry in table if entry > HARD)
        functions.append((factor.scope, [best - entry for entry in table]))
    if not problem.n_variables:
        return offset
    network = pytoulbar2.CFN(top)
    for name, size in zip(problem.variables, problem.domains.tolist(), strict=True):
        network.AddVariable(name, range(size))
    for scope, costs in functions:
        if scope:
            network.AddFunction(list(scope), [min(cost, top) for cost in costs])
    found = network.Solve()
    return HARD if found is None else offset - round(found[1])


SOLVE_FILES = """
import json, pathlib, sys, tempfile, pytoulbar2
found, path = [], pathlib.Path(tempfile.mkdtemp(), "p.wcsp")
for text in json.load(sys.stdin):
    path.write_text(text)
    network = pytoulbar2.CFN(verbose=-1)
    try:
        network.Read(str(path))
        solved = network.Solve()
    except Exception as error:  # what it raises where propagation alone finds a contradiction
        if "ontradiction" not in str(error):
            raise
        solved = None
    found.append(None if solved is None else solved[1])
print("\\nFOUND", json.dumps(found), flush=True)
"""


def optima(texts):
    """Return the least costs of networks (.wcsp) by toulbar2 in its own process; None if there is no solution.

    A separate process is used because toulbar2 may end it.
    """
    command = [sys.executable, "-c", SOLVE_FILES]
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=False, timeout=100)
    assert "FOUND" in done.stdout, done.stdout + done.stderr
    return json.loads(done.stdout.rpartition("FOUND")[2])
