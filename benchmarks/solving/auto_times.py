"""Time ``auto`` on the reference problems that it proves: the first solve of the process, and later ones.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.auto_times [--device cuda] [--memory 100GiB] [--repeats 10]
        [--large] [--output FILE]

FOLDER holds meetings/. Milliseconds are those of a solve of a problem in memory; the first one may compile or load
kernels and open a GPU. Each problem is solved without a time limit, and with one of 60 s. ``--large`` adds a problem
with 96 values, which needs a GPU, or a minute.
"""

import dmcmc
from benchmarks.harness import Columns, Report, Times, meeting, options, timed

NAMES = ("ms_A5_n10_D24", "ms_A10_n5_D24", "ms_A10_n10_D24", "mu_A10_n10_D24", "ms_A50_n10_D24")
LARGE = "ms_A10_n10_D96"
TABLE = Columns(
    ("problem", "<15"), ("budget", ">6"), ("first", ">9.1f"), ("least", ">8.1f"), ("median", ">8.1f"),
    ("most", ">8.1f"), ("status", "<8"), ("objective", ">10"), ("bound", ">10"), ("methods", "<"),
)  # fmt: skip


def measure(name: str, seconds: float | None, memory: int, device: str, repeats: int) -> str:
    """Solve a problem several times; return its line of the table."""
    problem = dmcmc.load(meeting(name))
    budget = {"time": seconds, "memory": memory}
    result, times = timed(lambda: dmcmc.solve(problem, budget=budget, device=device), 1 + repeats, untimed=0)
    first, later = times.seconds[0], Times(times.seconds[1:])
    shown = [1e3 * t for t in (first, later.least, later.median, later.most)]
    limit = "-" if seconds is None else f"{seconds:g} s"
    methods = ", ".join(sorted({agent.method for agent in result.agents}))
    return TABLE.line(name, limit, *shown, result.status, result.objective, result.bound, methods)


def main() -> None:
    """Measure and print."""
    parser = options(__file__, __doc__, device="cpu", memory="8GiB", only=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    report = Report(__file__, given)
    report(TABLE.head)
    for seconds in (None, 60.0):
        for name in (*NAMES, *([LARGE] if given.large else ())):
            if given.only in name:
                report(measure(name, seconds, given.memory, given.device, 2 if name == LARGE else given.repeats))
    report.keep()


if __name__ == "__main__":
    main()
