"""Measure how much memory a process keeps for each solve: ``solve``, a session, a session on private inputs.

    python -m benchmarks.robustness.memory_growth [--calls 1000] [--seconds 0.5] [--kind solve session private]

The problem has 200 variables of 4 values, 30 agents and 60 random edges. ``solve`` repeats the same call. The sessions
replace the table of a random own factor before each call. Printed are the resident memory after the first calls, which
fill the caches, and after the last one; for each half of the calls the growth per call; and per call the arrays of
Numba's runtime that were made and not freed. The growth should stay below 20 kB a call. Growth in the first half alone
is not a leak: kernels were still being compiled, or caches filled. Each half has at least one call.
"""

import gc
import os
import random
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python, rtsys

import dmcmc
from benchmarks.harness import Report, options
from dmcmc.formats import agent_files

AGENTS, VARIABLES, EDGES, VALUES = 30, 200, 60, 4
WARMING = 20  # calls that fill caches


def problem_of(rng: random.Random) -> dmcmc.Problem:
    """Return a chain of variables with some random edges; neighbouring variables belong to different agents."""
    builder = dmcmc.Problem.build(sense="max")
    pairs = [(v, v + 1) for v in range(VARIABLES - 1)]
    for v in range(VARIABLES):
        builder.variable(f"v{v}", VALUES, agent=f"a{v % AGENTS}")
        builder.factor(f"v{v}", own_table(rng), name=f"own{v}")
    for one, other in pairs + [tuple(rng.sample(range(VARIABLES), 2)) for _ in range(EDGES)]:
        builder.factor((f"v{one}", f"v{other}"), [[rng.randint(0, 20) for _ in range(VALUES)] for _ in range(VALUES)])
    return builder.problem()


def own_table(rng: random.Random) -> list[int]:
    """Return random utilities of the values of a variable."""
    return [rng.randint(0, 9) for _ in range(VALUES)]


def calls(kind: str, seconds: float, folder: Path) -> Callable[[], object]:
    """Return the function that is called again and again."""
    rng = random.Random(1)
    problem = problem_of(rng)
    if kind == "solve":
        return lambda: dmcmc.solve(problem, timeout=seconds)
    session: Any
    if kind == "private":
        agent_files.write(problem, folder, 1 << 30)
        session = dmcmc.PrivateSession(folder, share_assignment=True)
    else:
        session = dmcmc.Session(problem)

    def change() -> None:
        v = rng.randrange(VARIABLES)
        owner = (f"a{v % AGENTS}",) if kind == "private" else ()
        session.set_table(*owner, f"own{v}", own_table(rng))
        session.solve(seconds)

    return change


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def kept_arrays() -> int:
    """Return the number of arrays of Numba's runtime that have not been freed."""
    made = rtsys.get_allocation_stats()
    return int(made.mi_alloc - made.mi_free)


def main() -> None:
    """Measure each kind of call."""
    parser = options(__file__, __doc__ or "")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=0.5, help="time limit of each call")
    parser.add_argument("--kind", nargs="+", default=["solve", "session", "private"])
    chosen = parser.parse_args()
    report = Report(__file__, chosen)
    rtsys.initialize(cpu_target.target_context)
    _nrt_python.memsys_enable_stats()
    for kind in chosen.kind:
        with tempfile.TemporaryDirectory() as folder:
            call = calls(kind, chosen.seconds, Path(folder) / "parts")
            for _ in range(WARMING):
                call()
            half = max(1, chosen.calls // 2)
            seen = [(resident_bytes(), kept_arrays())]
            for _ in range(2):
                for _ in range(half):
                    call()
                seen.append((resident_bytes(), kept_arrays()))
            growth = [
                f"{(size - before) / 1e3 / half:.2f} kB and {(arrays - kept) / half:.3f} arrays a call"
                for (before, kept), (size, arrays) in pairwise(seen)
            ]
            report(
                f"{kind}: {seen[0][0] / 1e6:.1f} MB, after {2 * half} calls {seen[-1][0] / 1e6:.1f} MB:"
                f" {growth[0]} in the first half, {growth[1]} in the second"
            )
    report.keep()


if __name__ == "__main__":
    main()
