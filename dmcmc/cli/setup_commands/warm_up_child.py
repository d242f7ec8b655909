"""A child process of ``dmcmc warm-up``: it compiles kernels by solving small problems, or by a short run.

Without arguments it reads kinds of runs from standard input, a problem and settings per line (:func:`kinds`). For each
it writes a line of JSON when the kernels are compiled: the error, or null. With arguments it carries out that command
line of ``dmcmc``. It ends as soon as its standard input is closed, and thus with the process that started it.
"""

import json
import os
import queue
import runpy
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmcmc.inference.model.problem import Factor, Problem

_MAX_ERROR_CHARACTERS = 500  # of an error message, which is one line on a terminal
# Time limit in seconds of each run after compilation: so short that tables may be unfinished and all improvers start.
_SECONDS = 0.02
_MEETINGS: Mapping[str, Any] = {"agents": 3, "variables_per_agent": 14, "domain_size": 6, "seed": 1}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "fixed work": {},
    "a time budget": {"timeout": _SECONDS},
    "a time budget, branch and bound": {"timeout": _SECONDS, "search": "branch-and-bound"},
    "Gibbs sampling": {"timeout": _SECONDS, "method": "gibbs"},
    "mini-buckets": {"combine": {"method": "mini-bucket", "z": 2}},
}
"""Settings whose runs need different kernels, by name."""


def compile_kind(problem: str, settings: str, device: str) -> None:
    """Compile the kernels of a kind of runs by solving a small problem."""
    from dmcmc.api import solve

    solve(PROBLEMS[problem](), device=device, **{"search": "none", **SETTINGS[settings]})


def _meetings(**parameters: Any) -> "Problem":
    """Return a meeting-scheduling problem."""
    from dmcmc.api import generate

    return generate("meeting-scheduling", **_MEETINGS, **parameters)


def _one_agent() -> "Problem":
    """Return a problem of one agent with integer utilities."""
    from dmcmc.api import generate

    return generate("random", agents=1, variables_per_agent=30, domain_size=4, local_density=0.4, seed=1)


def _one_agent_with_probabilities() -> "Problem":
    """Return a problem of one agent with fractional utilities."""
    problem = _one_agent()
    return replace(problem, factors=tuple(map(_as_logarithms, problem.factors)))


def _as_logarithms(factor: "Factor") -> "Factor":
    """Return a factor with fractional utilities, as logarithms of probabilities are."""
    from dmcmc.inference.model.problem import Factor

    return Factor.of(factor.scope, -0.1 * factor.table)


PROBLEMS: Mapping[str, Callable[[], "Problem"]] = {
    "meetings": _meetings,
    "meetings with constraints": lambda: _meetings(tables="hard"),
    "one agent": _one_agent,
    "one agent, probabilities": _one_agent_with_probabilities,
}
"""Functions that make small problems that need different kernels, by name."""


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
    while True:
        error = None
        try:
            compile_kind(*json.loads(lines.get()))
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
