"""What ``auto`` chooses against each fixed choice, on small meeting problems over (|A|, |X|, |D|, p_l, |B|).

    python -m benchmarks.solving.auto_sweep [--time 4] [--gap 0.01] [--repeats 2] [--limit N] [--drawn N --seed S]

A choice takes the seconds until the gap is proven; where it never is, the time limit × (1 + 10 × the gap that is left).
Of several repeats, which alternate between the choices, the least counts: 2, and 8 where that is below half a second;
what never proves the gap takes the whole limit and is not repeated. The last line is the share of problems on
which ``auto`` is within 1.5 times the best fixed choice. The thresholds of ``auto`` were chosen with the list below in
view; ``--drawn`` takes problems that nobody has seen, their sizes drawn from a seed.
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

WITHIN = 1.5
_MOST = 1.5e9  # cells a second
_SHORT, _SHORT_REPEATS = 0.5, 4  # below so many seconds, so many times the repeats
CHOICES: dict[str, dict[str, Any]] = {
    "auto": {},
    "exact": {"method": "exact"},
    "triangles": {"method": "annealing", "bound": "triangles"},
    "dual": {"method": "annealing", "bound": "dual"},
    "mini-bucket": {"method": "annealing", "bound": "mini-bucket"},
}
Sizes = tuple[int, int, int, float, int]  # agents, variables, values, density, interface variables
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
    """Print a line a problem, and the share."""
    parser = options(__file__, __doc__)
    parser.add_argument("--time", type=float, default=4.0)
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--drawn", type=int, default=0, help="problems to draw in place of the list")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    problems = drawn(given.drawn, given.seed) if given.drawn else PROBLEMS
    say = Report(__file__, given, time=f"{given.time:g} s", gap=f"{given.gap:g}")
    say(" ".join([" |A| |X| |D|  p_l |B| tables     ", *(f"{name:>11}" for name in CHOICES), " ratio  methods"]))
    for choice in CHOICES:  # compiles
        run(problem_of((3, 6, 12, 0.6, 1), "uniform"), choice, min(2.0, given.time), given.gap)
    ratios = []
    for number, sizes in enumerate(problems[: given.limit]):
        tables = "uniform" if number % 2 else "preferences"
        cost, methods = measure(problem_of(sizes, tables, 1 + given.seed), given.time, given.gap, given.repeats)
        ratios.append(cost["auto"] / min(value for name, value in cost.items() if name != "auto"))
        shown = "{:>4}{:>4}{:>4}{:>5}{:>4}".format(*sizes), f"{tables:<11}", *(f"{v:>11.3f}" for v in cost.values())
        say(" ".join([*shown, f"{ratios[-1]:6.2f}  {methods}"]))
    share = np.mean([ratio <= WITHIN for ratio in ratios])
    say(f"auto within {WITHIN:g} times the best fixed choice on {100 * share:.0f} % of {len(ratios)} problems")
    say.keep()


def measure(problem: Problem, limit: float, gap: float, repeats: int) -> tuple[dict[str, float], str]:
    """Return what every choice costs, and which methods the agents had by ``auto``."""
    cost, chosen = dict.fromkeys(CHOICES, np.inf), ""
    for repeat in range(_SHORT_REPEATS * repeats):
        for choice in CHOICES:
            late, long = cost[choice] >= limit, cost[choice] >= _SHORT
            if repeat and (late or (long and repeat >= repeats)):
                continue
            seconds, methods = run(problem, choice, limit, gap)
            cost[choice] = min(cost[choice], seconds)
            chosen = methods if choice == "auto" else chosen
    return cost, chosen


def drawn(count: int, seed: int) -> tuple[Sizes, ...]:
    """Return sizes of problems whose agents' eliminations take between 10^4 and 10^12 cells."""
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
    """Return what a choice costs, and which methods the agents had."""
    budget = {"time": limit, "gap": gap}
    if choice == "exact" and local_cells(problem) > _MOST * limit:
        return np.inf, ""  # longer than the others take in any case
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
    """Return the joined cells of all agents' eliminations."""
    return sum(local.order.cells for local in divide(problem).locals)


if __name__ == "__main__":
    main()
