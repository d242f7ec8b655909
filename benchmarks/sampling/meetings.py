"""Solve the reference meeting problems on one core: utility and seconds, compared with a prototype and toulbar2's VNS.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.sampling.meetings [--vns SECONDS] [--only TEXT] [--output FILE]

``prototype``: the utility and the seconds of an annealed Gibbs sampler of 60 lines on an idle core of the same kind.
The aim is to reach that utility in half the time. Our seconds are those of the solve with compiled kernels, on one
thread, best of three. VNS runs in the same script on the same core; its seconds are toulbar2's own.
"""

import dmcmc
from benchmarks.harness import Columns, Report, meeting, one_core, options, timed
from benchmarks.toulbar2 import search
from dmcmc import Problem

# instance; utility and seconds of the prototype; our runs and samples
PAIRS = (
    ("ms_A10_n10_D24", 4020, 0.17, 3, 48),
    ("ms_A10_n25_D24", 24147, 0.56, 2, 150),
    ("ms_A10_n50_D24", 92518, 0.50, 3, 40),
    ("ms_A10_n50_D24", 92526, 2.0, 2, 250),
    ("ms_A10_n10_D96", 18446, 1.0, 2, 40),
    ("ms_A10_n10_D96", 18510, 9.0, 4, 300),
    ("ms_A50_n10_D24", 20708, 0.81, 2, 48),
    ("mu_A10_n10_D24", 204160, 0.16, 2, 48),
    ("mu_A10_n10_D24", 204922, 0.64, 6, 150),
    ("mu_A10_n25_D24", 1156515, 0.57, 2, 150),
    ("mu_A10_n50_D24", 4237072, 0.52, 1, 150),
    ("mu_A10_n50_D24", 4259492, 3.8, 3, 300),
    ("mu_A10_n10_D96", 213533, 0.85, 2, 40),
    ("mu_A10_n10_D96", 215436, 7.2, 6, 200),
)
LONG = (  # best known utilities for runs of up to ten seconds
    ("ms_A10_n25_D24", 24147), ("ms_A10_n50_D24", 92526), ("ms_A10_n10_D96", 18510), ("ms_A10_n10_D24", 4020),
    ("ms_A50_n10_D24", 20731), ("mu_A10_n25_D24", 1156515), ("mu_A10_n50_D24", 4259492), ("mu_A10_n10_D96", 215436),
    ("mu_A10_n10_D24", 205017),
)  # fmt: skip

PROTOTYPE = Columns(
    ("instance", "<16"), ("prototype", ">10d"), ("s", ">6.2f"), ("ours", ">10.0f"), ("s", ">7.3f"), ("R", ">3d"),
    ("S", ">4d"), ("reached", "<7"), ("share of its time", ">17.2f"),
)  # fmt: skip
LONGEST = Columns(
    ("instance", "<16"), ("best known", ">11d"), ("", "<1"), ("ours", ">10.0f"), ("s", ">7.2f"),
    ("toulbar2 VNS", ">12.0f"), ("found at s", ">10.1f"),
)  # fmt: skip


def ours(problem: Problem, runs: int, samples: int) -> tuple[float, float]:
    """Return our utility, and the least seconds of three runs."""
    local = {"method": "annealing", "runs": runs, "samples": samples, "bound": "none"}
    result, times = timed(lambda: dmcmc.solve(problem, local=local, device="cpu"), 3, untimed=0)
    assert result.objective is not None
    return float(result.objective), times.least


def vns(name: str, seconds: int) -> tuple[float | None, float | None]:
    """Return toulbar2's best utility by variable neighbourhood search, and when it was found."""
    trace = search(meeting(name), "vns", seconds)
    return (trace[-1].objective, trace[-1].seconds) if trace else (None, None)


def main() -> None:
    """Print the tables."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--vns", type=int, default=10, help="seconds for toulbar2's VNS on each instance (0: none)")
    given = parser.parse_args()
    with one_core():
        report = Report(__file__, given)
        ours(dmcmc.load(meeting("ms_A10_n10_D24")), 1, 16)  # compiles
        report(PROTOTYPE.head)
        for name, utility, seconds, runs, samples in (pair for pair in PAIRS if given.only in pair[0]):
            found, solve_seconds = ours(dmcmc.load(meeting(name)), runs, samples)
            reached = "yes" if found >= utility else "NO"
            report(
                PROTOTYPE.line(
                    name, utility, seconds, found, solve_seconds, runs, samples, reached, solve_seconds / seconds
                )
            )
        report("\nwithin ten seconds")
        report(LONGEST.head)
        for name, utility in (pair for pair in LONG if given.only in pair[0]):
            found, solve_seconds = ours(dmcmc.load(meeting(name)), 10, 400 if "n50" not in name else 250)
            mark = ">" if found > utility else ("=" if found == utility else "<")
            report(
                LONGEST.line(name, utility, mark, found, solve_seconds, *(vns(name, given.vns) if given.vns else ()))
            )
    report.keep()


if __name__ == "__main__":
    main()
