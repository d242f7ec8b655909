"""Measure how the time of a warm exact solve grows with the number of agents.

    python -m benchmarks.elimination.growth [--agents 100 300 1000] [--small 100000] [--repeats 3]
        [--device auto|cpu|cuda] [--output FILE]

Meeting problems have the default kind: ten variables of 24 values per agent. The problem is made, solved once to load
or compile all kernels, and then solved ``--repeats`` times; ``ms per agent`` is the median of these solves divided by
the number of agents. ``--small`` gives numbers of agents with two variables of three values each, in a tree.
"""

import resource

import dmcmc
from benchmarks.harness import Columns, Report, options, timed

TABLE = Columns(
    ("kind", "<8"), ("agents", ">7"), ("status", "<8"), ("s", ">8.3f"), ("ms per agent", ">12.3f"), ("GB", ">6.2f")
)


def main() -> None:
    """Run the benchmark and print one line per number of agents."""
    parser = options(__file__, __doc__, device="auto")
    parser.add_argument("--agents", type=int, nargs="*", default=[100, 300, 1000])
    parser.add_argument("--small", type=int, nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    report = Report(__file__, given)
    report(TABLE.head)
    for agents in given.agents:
        problem = dmcmc.generate("meeting-scheduling", agents=agents)
        measure(report, "meetings", agents, problem, given.device, given.repeats)
    for agents in given.small:
        parameters = {"variables_per_agent": 2, "domain_size": 3, "global_density": 0.0}
        problem = dmcmc.generate("random", agents=agents, **parameters)
        measure(report, "small", agents, problem, given.device, given.repeats)
    report.keep()


def measure(report: Report, kind: str, agents: int, problem: dmcmc.Problem, device: str, repeats: int) -> None:
    """Solve a problem several times and report one line."""
    result, times = timed(lambda: dmcmc.solve(problem, device=device), repeats)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    report(TABLE.line(kind, agents, result.status, times.median, 1e3 * times.median / agents, memory))


if __name__ == "__main__":
    main()
