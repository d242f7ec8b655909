"""Compare ``auto`` with each fixed choice of methods on small meeting problems over (|A|, |X|, |D|, p_l, |B|).

    python -m benchmarks.solving.auto_sweep [--time 4] [--gap 0.01] [--repeats 2] [--limit N] [--drawn N --seed S]

The cost of a choice is the seconds until the gap is proven; if it is not proven, the time limit × (1 + 10 × the
remaining gap). The least cost of several repeats counts, which alternate between the choices: 2 repeats, and 8 if the
cost is below half a second. A choice that does not prove the gap is not repeated. The last line is the share of
problems on which ``auto`` costs at most 1.5 times the best fixed choice. The limits of ``auto`` were chosen by the
problems listed here; ``--drawn`` takes new problems, whose sizes are drawn from a seed.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import dmcmc
from benchmarks.harness import Report, options
from dmcmc import Problem
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.runtime.errors import DmcmcError

MAX_RATIO = 1.5
_MAX_CELLS_PER_SECOND = 1.5e9  # cells per second: rate above which an exact elimination cannot be in time
_SHORT_SECONDS = 0.5  # costs below count as short
_SHORT_REPEAT_FACTOR = 4  # repeats of short costs, relative to others
CHOICES: dict[str, dict[str, Any]] = {
    "auto": {},
    "exact": {"method": "exact"},
    "triangles": {"method": "annealing", "bound": "triangles"},
    "dual": {"method": "annealing", "bound": "dual"},
    "mini-bucket": {"method": "annealing", "bound": "mini-bucket"},
}
Sizes = tuple[int, int, int, float, int]  # agents, variables, values, density, boundary variables
PROBLEMS = (
    (3, 5, 24, 0.5, 1), (10, 5, 24, 0.5, 1), (50, 5, 24, 0.5, 1), (3, 8, 24, 0.5, 1), (10, 8, 24, 0.5, 1),
    (3, 10, 24, 0.5, 1), (10, 10, 24, 0.5, 1), (30, 10, 24, 0.5, 1), (5, 10, 24, 0.8, 1), (10, 10, 12, 0.5, 1),
    (10, 10, 12, 0.9, 1), (30, 10, 12, 0.5, 1), (4, 12, 12, 0.5, 1), (4, 12, 24, 0.3, 1), (4, 12, 24, 0.5, 1),
    (4, 14, 6, 0.5, 1), (4, 14, 6, 0.8, 1), (4, 14, 12, 0.4, 1), (4, 16, 6, 0.5, 1), (4, 20, 4, 0.5, 1),
    (4, 20, 2, 0.5, 1), (4, 25, 2, 0.6, 1), (4, 20, 6, 0.4, 1), (4, 25, 24, 0.2, 1), (4, 25, 12, 0.5, 1),
    (3, 25, 24, 0.5, 1), (10, 6, 48, 0.5, 1), (4, 8, 48, 0.5, 1), (3, 8, 96, 0.4, 1), (3, 6, 96, 0.6, 1),
    (4, 10, 12, 0.5, 2), (10, 8, 12, 0.5, 2), (4, 12, 8, 0.5, 2), (4, 10, 24, 0.5, 2), (4, 10, 6, 0.6, 3),
    (4, 12, 4, 0.5, 4),
)  # fmt: skip


def main() -> None:
    """Print a line per problem, and the share."""
    parser = options(__file__, __doc__)
    parser.add_argument("--time", type=float, default=4.0)
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--drawn", type=int, default=0, help="number of drawn problems that replace the list")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    problems = drawn_sizes(given.drawn, given.seed) if given.drawn else PROBLEMS
    report = Report(__file__, given, time=f"{given.time:g} s", gap=f"{given.gap:g}")
    report(" ".join([" |A| |X| |D|  p_l |B| tables     ", *(f"{name:>11}" for name in CHOICES), " ratio  methods"]))
    for choice in CHOICES:  # compile the kernels
        run(problem_of((3, 6, 12, 0.6, 1), "uniform"), choice, min(2.0, given.time), given.gap)
    ratios = []
    for number, sizes in enumerate(problems[: given.limit]):
        tables = "uniform" if number % 2 else "preferences"
        cost, methods = measure(problem_of(sizes, tables, 1 + given.seed), given.time, given.gap, given.repeats)
        ratios.append(cost["auto"] / min(value for name, value in cost.items() if name != "auto"))
        shown = "{:>4}{:>4}{:>4}{:>5}{:>4}".format(*sizes), f"{tables:<11}", *(f"{v:>11.3f}" for v in cost.values())
        report(" ".join([*shown, f"{ratios[-1]:6.2f}  {methods}"]))
    share = np.mean([ratio <= MAX_RATIO for ratio in ratios])
    report(f"auto within {MAX_RATIO:g} times the best fixed choice on {100 * share:.0f} % of {len(ratios)} problems")
    report.keep()


def measure(problem: Problem, limit: float, gap: float, repeats: int) -> tuple[dict[str, float], str]:
    """Return the cost of every choice, and the methods that ``auto`` chose for the agents."""
    cost, chosen = dict.fromkeys(CHOICES, np.inf), ""
    for repeat in range(_SHORT_REPEAT_FACTOR * repeats):
        for choice in CHOICES:
            too_slow, not_short = cost[choice] >= limit, cost[choice] >= _SHORT_SECONDS
            if repeat and (too_slow or (not_short and repeat >= repeats)):
                continue
            seconds, methods = run(problem, choice, limit, gap)
            cost[choice] = min(cost[choice], seconds)
            chosen = methods if choice == "auto" else chosen
    return cost, chosen


def drawn_sizes(count: int, seed: int) -> tuple[Sizes, ...]:
    """Return problem sizes at which the agents' eliminations take between 10^4 and 10^12 cells."""
    rng, found = np.random.default_rng(seed), list[Sizes]()
    while len(found) < count:
        sizes = (
            int(rng.integers(3, 31)),
            int(rng.integers(5, 26)),
            int(rng.choice([2, 4, 6, 8, 12, 16, 24, 32, 48, 96])),
            round(float(rng.uniform(0.2, 0.9)), 1),
            int(rng.choice([1, 1, 1, 2, 3])),
        )
        cells = local_cells(problem_of(sizes, "uniform", 1 + seed))
        if sizes[2] ** sizes[4] <= 2000 and 1e4 <= cells <= 1e12:
            found.append(sizes)
    return tuple(found)


def problem_of(sizes: Sequence[float], tables: str, seed: int = 1) -> Problem:
    """Return a generated problem."""
    names = ("agents", "variables_per_agent", "domain_size", "local_density", "interface_variables")
    given = dict(zip(names, sizes, strict=True)) | {"tables": tables, "seed": seed}
    return dmcmc.generate("meeting-scheduling", **given)


def run(problem: Problem, choice: str, limit: float, gap: float) -> tuple[float, str]:
    """Return the cost of a choice, and the methods of the agents."""
    budget = {"time": limit, "gap": gap}
    if choice == "exact" and local_cells(problem) > _MAX_CELLS_PER_SECOND * limit:
        return np.inf, ""  # longer than any other choice takes
    start = time.perf_counter()
    try:
        result = dmcmc.solve(problem, local=CHOICES[choice], budget=budget, device="cpu")
    except DmcmcError as error:
        print(f"# {choice}: {error}", file=sys.stderr)
        return np.inf, ""
    seconds = time.perf_counter() - start
    used = [agent.method for agent in result.agents]
    text = ", ".join(f"{used.count(name)} {name}" for name in sorted(set(used)))
    if result.gap is not None and result.gap <= gap:
        return seconds, text
    return limit * (1 + 10 * (1.0 if result.gap is None else result.gap)), text


def local_cells(problem: Problem) -> float:
    """Return the joined cells of the eliminations of all agents."""
    return sum(local.order.cells for local in divide(problem).locals)


if __name__ == "__main__":
    main()
