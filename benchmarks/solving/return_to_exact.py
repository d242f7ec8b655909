"""Measure how fast ``auto`` proves what ``exact`` proves, and the utility of large problems after a few seconds.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.return_to_exact [--seeds 10] [--only TEXT] [--before FOLDER]
        [--jobs 7] [--cores 2] [--lines FILE.jsonl] [--output FILE]

There are three parts, each run by ``dmcmc run`` or ``solve`` (``--only`` selects parts by their names):

* ``proven``: meeting scheduling with 50 agents of the default size, 20 s; seconds to the proof by the default method,
  and by ``local.method: exact`` (with and without a time limit). The aim is a ratio of at most 1.5.
* ``large``: ``configs/large.yaml`` (with its own method and with ``auto``), and 100 agents of 50 variables; the utility
  after 1 and 5 seconds as a share of that after 60.
* ``random``: RandomDCOP_20_10_1 (FOLDER/instances), 20 agents of one variable each: the cost after 1 and 20 seconds.
"""

import statistics
import sys
import tempfile
from argparse import Namespace
from functools import partial
from pathlib import Path

from benchmarks.harness import ROOT, Columns, Report, instances, options
from benchmarks.jobs import (
    JsonLine,
    PinnedJob,
    add_options,
    compile_kernels,
    lines_of,
    programs,
    run_jobs,
    solve_to_json,
)
from dmcmc import generate
from dmcmc.formats.registry import save

MAX_RATIO = 1.5  # largest ratio of the times of auto and exact that is accepted
GRACE_SECONDS = 90.0  # seconds after its time limit at which a run is stopped
UNLIMITED_SECONDS = 300.0  # seconds after which a run without a time limit is stopped
CONFIG = str(ROOT / "configs" / "large.yaml")
LARGE = {
    "large.yaml": (CONFIG, ()),
    "large.yaml auto": (CONFIG, ("--set", "local.method=auto")),
    "100 agents of 50": (CONFIG, ("--set", "problem.agents=100", "--set", "local.method=auto")),
}
TIMES = (60.0, 5.0, 1.0)  # seconds
MIN_SHARES = {60.0: 0.0, 5.0: 0.999, 1.0: 0.99}  # smallest accepted shares of the utility after 60 s
RANDOM = "instances/dcop_xcsp/RandomDCOP_20_10_1.xml"
MAX_COSTS = {1.0: 2376, 20.0: 2352}  # largest accepted costs, by seconds


def run(command: list[str], limit: float, cores: set[int]) -> JsonLine:
    """Run a version once; return its JSON line without the assignment."""
    line = solve_to_json(command, cores, limit)
    line.pop("assignment", None)
    return line


def proven_jobs(folder: Path, program: list[str], version: str, seeds: int) -> list[PinnedJob]:
    """Return the jobs of part ``proven``."""
    found = []
    for seed in range(seeds):
        file = folder / f"a50_{seed}.npz"
        if not file.exists():
            save(generate("meeting-scheduling", agents=50, seed=seed), file)
        solve = [*program, "solve", str(file)]
        variants = {
            "auto": ([*solve, "--timeout", "20"], 20 + GRACE_SECONDS),
            "exact": ([*solve, "--method", "exact", "--timeout", "20"], 20 + GRACE_SECONDS),
            "exact, no budget": ([*solve, "--method", "exact"], UNLIMITED_SECONDS),
        }
        found += [
            PinnedJob(f"proven|{seed}|{version}|{variant}", partial(run, *arguments))
            for variant, arguments in variants.items()
        ]
    return found


def large_jobs(program: list[str], version: str) -> list[PinnedJob]:
    """Return the jobs of part ``large``."""
    output = ("--set", "output=null")
    return [
        PinnedJob(
            f"large|{name}|{version}|{seconds:g}",
            partial(
                run, [*program, "run", config, *more, *output, "--timeout", f"{seconds:g}"], seconds + GRACE_SECONDS
            ),
        )
        for seconds in TIMES
        for name, (config, more) in LARGE.items()
    ]


def random_jobs(program: list[str], version: str) -> list[PinnedJob]:
    """Return the jobs of part ``random``."""
    solve = [*program, "solve", str(instances() / RANDOM)]
    return [
        PinnedJob(
            f"random|{version}|{seconds:g}",
            partial(run, [*solve, "--timeout", f"{seconds:g}"], seconds + GRACE_SECONDS),
        )
        for seconds in MAX_COSTS
    ]


def proven_table(report: Report, lines: dict[str, JsonLine], versions: list[str], seeds: int) -> bool:
    """Print the times to a proof; return whether this version is fast enough."""
    variants = ("auto", "exact", "exact, no budget")
    columns = Columns(
        ("proven: seed", "<13"), ("version", "<8"), *((variant, ">18") for variant in variants), ("ratio", ">6.2f")
    )
    report(columns.head)
    ratios: dict[str, list[float]] = {version: [] for version in versions}
    for seed in range(seeds):
        for version in versions:
            found = [lines.get(f"proven|{seed}|{version}|{variant}", {}) for variant in variants]
            times = [line["time"] if line.get("status") == "optimal" else None for line in found]
            shown = [
                f"{line.get('status', 'none')} {line['time']:.2f} s" if line.get("time") is not None else "none"
                for line in found
            ]
            exact = [t for t in times[1:] if t is not None]
            ratio = times[0] / min(exact) if times[0] is not None and exact else None
            ratios[version].append(float("inf") if ratio is None else ratio)
            report(columns.line(str(seed), version, *shown, ratio))
    for version, values in ratios.items():
        report(f"{version}: ratio median {statistics.median(values):.2f}, max {max(values):.2f}, aim {MAX_RATIO}")
    return max(ratios["now"]) <= MAX_RATIO


def large_table(report: Report, lines: dict[str, JsonLine], versions: list[str]) -> bool:
    """Print the utilities after some seconds; return whether they reach the aims."""
    columns = Columns(("large", "<18"), ("version", "<8"), ("s", ">4g"), ("took", ">7.2f"), ("utility", ">10"))
    report(columns.head + " of 60 s")
    good = True
    for name in LARGE:
        for version in versions:
            last = lines.get(f"large|{name}|{version}|{max(TIMES):g}", {}).get("objective")
            for seconds in sorted(TIMES):
                line = lines.get(f"large|{name}|{version}|{seconds:g}", {})
                share = line["objective"] / last if last and line.get("objective") is not None else 0.0
                enough = share >= MIN_SHARES[seconds]
                good = good and (enough or version != "now")
                cells = (name, version, seconds, line.get("time"), str(line.get("objective")))
                report(columns.line(*cells) + f" {share:.2%}" + ("" if enough else f" below {MIN_SHARES[seconds]:.1%}"))
    return good


def random_table(report: Report, lines: dict[str, JsonLine], versions: list[str]) -> bool:
    """Print the costs of RandomDCOP_20_10_1; return whether they reach the aims."""
    columns = Columns(("random", "<18"), ("s", ">4g"), ("took", ">7.2f"), ("cost", ">8"), ("bound", ">8"), ("aim", ""))
    report(columns.head)
    good = True
    for version in versions:
        for seconds, aim in MAX_COSTS.items():
            line = lines.get(f"random|{version}|{seconds:g}", {})
            cost = line.get("objective")
            good = good and (version != "now" or (cost is not None and cost <= aim))
            report(columns.line(version, seconds, line.get("time"), str(cost), str(line.get("bound")), str(aim)))
    return good


def jobs_of(given: Namespace, folder: Path) -> list[PinnedJob]:
    """Return all jobs, the longest first."""
    found = list[PinnedJob]()
    for version, program in programs(given).items():
        if given.only in "large":
            found += large_jobs(program, version)
        if given.only in "proven":
            found += proven_jobs(folder, program, version, given.seeds)
        if given.only in "random":
            found += random_jobs(program, version)
    return found


def main() -> int:
    """Run the selected parts, and print their tables."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seeds", type=int, default=10, help="number of problems with 50 agents")
    add_options(parser)
    given = parser.parse_args()
    report = Report(__file__, given)
    versions = programs(given)
    with tempfile.TemporaryDirectory() as folder:
        if given.compile_first:
            compile_kernels(given)
        run_jobs(jobs_of(given, Path(folder)), given, lambda line: print(line["key"], file=sys.stderr, flush=True))
    lines = {line["key"]: line for line in lines_of(given)}
    good = True
    if given.only in "proven":
        good = proven_table(report, lines, list(versions), given.seeds)
    if given.only in "large":
        good = large_table(report, lines, list(versions)) and good
    if given.only in "random":
        good = random_table(report, lines, list(versions)) and good
    report.keep()
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
