"""Run pyDCOP in a separate process: read a problem and write an assignment, one line of JSON each.

The request on standard input is an object with the keys

* ``domains``: the domain size of each variable;
* ``tables``: pairs of a scope (variable indices) and a nested list of costs;
* ``algorithm``: a name of pyDCOP, such as ``dsa``; ``seconds``: its time limit; ``seed``: the random seed.

The reply on standard output is the list of the variables' value indices, or ``null`` without a complete assignment.

This file imports nothing from dmcmc. pyDCOP 0.1.1 needs names that Python 3.10 and NumPy 1.23 removed; they are
restored here.
"""

import collections
import collections.abc
import ctypes
import json
import logging
import os
import random
import signal
import sys
from contextlib import suppress

import numpy as np

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2): the kernel kills this process when its parent ends


def main() -> None:
    """Solve one problem by minimising costs, since pyDCOP's MGM and MGM2 have a wrong sign when they maximise."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    request = json.loads(sys.stdin.readline())
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # pyDCOP prints to standard output; its text goes to standard error instead
    logging.disable(logging.CRITICAL)
    random.seed(request["seed"])
    for name in ("Iterable", "Mapping", "Callable", "Sized", "Hashable"):
        setattr(collections, name, getattr(collections.abc, name))
    vars(np)["asscalar"] = lambda array: array.item()
    from pydcop.dcop.dcop import DCOP
    from pydcop.dcop.objects import AgentDef, Domain, Variable
    from pydcop.dcop.relations import NAryMatrixRelation
    from pydcop.infrastructure.run import solve

    problem = DCOP("problem", "min")
    variables = [Variable(f"x{v}", Domain(f"d{v}", "", list(range(d)))) for v, d in enumerate(request["domains"])]
    for variable in variables:
        problem.add_variable(variable)
    for index, (scope, costs) in enumerate(request["tables"]):
        relation = NAryMatrixRelation([variables[v] for v in scope], np.array(costs), name=f"c{index}")
        problem.add_constraint(relation)
    problem.add_agents([AgentDef(f"a{v}") for v in range(len(variables))])
    values_by_name = solve(problem, request["algorithm"], "oneagent", timeout=request["seconds"]) or {}
    complete = all(values_by_name.get(variable.name) is not None for variable in variables)
    reply.write(json.dumps([int(values_by_name[variable.name]) for variable in variables] if complete else None) + "\n")
    reply.flush()
    os._exit(0)  # threads of pyDCOP's agents may still run


if __name__ == "__main__":
    main()
