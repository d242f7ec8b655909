"""How fast ``auto`` with a time budget proves what ``exact`` proves, and what large problems have after a moment.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.back_to_exact [--seeds 10] [--only TEXT] [--before FOLDER]
        [--jobs 7] [--cores 2] [--lines FILE.jsonl] [--output FILE]

Three parts, each run by ``dmcmc run`` or ``solve`` (``--only`` takes parts of their names):

* `proven`: meeting scheduling with 50 agents of the default kind, 20 s; seconds until that is proven by the default
  method, and by ``local.method: exact`` (with and without the budget of time); at most 1.5 times as long is the aim.
* `large`: ``configs/large.yaml`` (with its own method and with ``auto``), and 100 agents of 50 variables; the utility
  after 1 and 5 seconds as a share of that after 60.
* `random`: RandomDCOP_20_10_1 (FOLDER/instances), 20 agents of one variable: the cost after 1 and after 20 seconds.
"""

import statistics
import sys
import tempfile
from argparse import Namespace
from functools import partial
from pathlib import Path

from benchmarks.harness import ROOT, Columns, Report, instances, options
from benchmarks.jobs import Job, Line, add_options, ask, lines_of, programs, run_jobs, warm_up
from dmcmc import generate
from dmcmc.formats.registry import save

AIM = 1.5  # times the time of exact
LATE = 90.0  # seconds beyond its time after which a run is given up
FIXED = 300.0  # seconds after which a run without a budget is given up
CONFIG = str(ROOT / "configs" / "large.yaml")
LARGE = {
    "large.yaml": (CONFIG, ()),
    "large.yaml auto": (CONFIG, ("--set", "local.method=auto")),
    "100 agents of 50": (CONFIG, ("--set", "problem.agents=100", "--set", "local.method=auto")),
}
TIMES, AIMS = (60.0, 5.0, 1.0), {60.0: 0.0, 5.0: 0.999, 1.0: 0.99}  # shares of what there is after 60 s
RANDOM, COSTS = "instances/dcop_xcsp/RandomDCOP_20_10_1.xml", {1.0: 2376, 20.0: 2352}


def run(command: list[str], limit: float, cores: set[int]) -> Line:
    """Run a version once; the assignment is not kept."""
    line = ask(command, cores, limit)
    line.pop("assignment", None)
    return line


def proven_jobs(folder: Path, program: list[str], version: str, seeds: int) -> list[Job]:
    """Return the runs of part `proven`."""
    found = []
    for seed in range(seeds):
        file = folder / f"a50_{seed}.npz"
        if not file.exists():
            save(generate("meeting-scheduling", agents=50, seed=seed), file)
        solve = [*program, "solve", str(file)]
        ways = {
            "auto": ([*solve, "--timeout", "20"], 20 + LATE),
            "exact": ([*solve, "--method", "exact", "--timeout", "20"], 20 + LATE),
            "exact, no budget": ([*solve, "--method", "exact"], FIXED),
        }
        found += [Job(f"proven|{seed}|{version}|{way}", partial(run, *what)) for way, what in ways.items()]
    return found


def large_jobs(program: list[str], version: str) -> list[Job]:
    """Return the runs of part `large`."""
    output = ("--set", "output=null")
    return [
        Job(
            f"large|{name}|{version}|{seconds:g}",
            partial(run, [*program, "run", config, *more, *output, "--timeout", f"{seconds:g}"], seconds + LATE),
        )
        for seconds in TIMES
        for name, (config, more) in LARGE.items()
    ]


def random_jobs(program: list[str], version: str) -> list[Job]:
    """Return the runs of part `random`."""
    solve = [*program, "solve", str(instances() / RANDOM)]
    return [
        Job(f"random|{version}|{seconds:g}", partial(run, [*solve, "--timeout", f"{seconds:g}"], seconds + LATE))
        for seconds in COSTS
    ]


def proven_table(say: Report, lines: dict[str, Line], versions: list[str], seeds: int) -> bool:
    """Say how long each took to prove; return whether this version was fast enough."""
    ways = ("auto", "exact", "exact, no budget")
    columns = Columns(("proven: seed", "<13"), ("version", "<8"), *((way, ">18") for way in ways), ("ratio", ">6.2f"))
    say(columns.head)
    ratios: dict[str, list[float]] = {version: [] for version in versions}
    for seed in range(seeds):
        for version in versions:
            found = [lines.get(f"proven|{seed}|{version}|{way}", {}) for way in ways]
            times = [line["time"] if line.get("status") == "optimal" else None for line in found]
            shown = [
                f"{line.get('status', 'none')} {line['time']:.2f} s" if line.get("time") is not None else "none"
                for line in found
            ]
            exact = [t for t in times[1:] if t is not None]
            ratio = times[0] / min(exact) if times[0] is not None and exact else None
            ratios[version].append(float("inf") if ratio is None else ratio)
            say(columns.line(str(seed), version, *shown, ratio))
    for version, own in ratios.items():
        say(f"{version}: ratio median {statistics.median(own):.2f}, most {max(own):.2f} (aim {AIM})")
    return max(ratios["now"]) <= AIM


def large_table(say: Report, lines: dict[str, Line], versions: list[str]) -> bool:
    """Say what there is after a moment; return whether it is enough."""
    columns = Columns(("large", "<18"), ("version", "<8"), ("s", ">4g"), ("took", ">7.2f"), ("utility", ">10"))
    say(columns.head + " of 60 s")
    good = True
    for name in LARGE:
        for version in versions:
            last = lines.get(f"large|{name}|{version}|{max(TIMES):g}", {}).get("objective")
            for seconds in sorted(TIMES):
                line = lines.get(f"large|{name}|{version}|{seconds:g}", {})
                share = line["objective"] / last if last and line.get("objective") is not None else 0.0
                enough = share >= AIMS[seconds]
                good = good and (enough or version != "now")
                cells = (name, version, seconds, line.get("time"), str(line.get("objective")))
                say(columns.line(*cells) + f" {share:.2%}" + ("" if enough else f" below {AIMS[seconds]:.1%}"))
    return good


def random_table(say: Report, lines: dict[str, Line], versions: list[str]) -> bool:
    """Say what RandomDCOP_20_10_1 costs; return whether that is little enough."""
    columns = Columns(("random", "<18"), ("s", ">4g"), ("took", ">7.2f"), ("cost", ">8"), ("bound", ">8"), ("aim", ""))
    say(columns.head)
    good = True
    for version in versions:
        for seconds, aim in COSTS.items():
            line = lines.get(f"random|{version}|{seconds:g}", {})
            cost = line.get("objective")
            good = good and (version != "now" or (cost is not None and cost <= aim))
            say(columns.line(version, seconds, line.get("time"), str(cost), str(line.get("bound")), str(aim)))
    return good


def jobs_of(given: Namespace, folder: Path) -> list[Job]:
    """Return all runs, the longest first."""
    found = list[Job]()
    for version, program in programs(given).items():
        if given.only in "large":
            found += large_jobs(program, version)
        if given.only in "proven":
            found += proven_jobs(folder, program, version, given.seeds)
        if given.only in "random":
            found += random_jobs(program, version)
    return found


def main() -> int:
    """Run the parts that were asked for, and say what they gave."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seeds", type=int, default=10, help="of 50 agents")
    add_options(parser)
    given = parser.parse_args()
    say = Report(__file__, given)
    versions = programs(given)
    with tempfile.TemporaryDirectory() as folder:
        if given.warm:
            warm_up(given)
        run_jobs(jobs_of(given, Path(folder)), given, lambda line: print(line["key"], file=sys.stderr, flush=True))
    lines = {line["key"]: line for line in lines_of(given)}
    good = True
    if given.only in "proven":
        good = proven_table(say, lines, list(versions), given.seeds)
    if given.only in "large":
        good = large_table(say, lines, list(versions)) and good
    if given.only in "random":
        good = random_table(say, lines, list(versions)) and good
    say.keep()
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
