"""The gap over time with each ingredient of the bound added, beside toulbar2, and what each kind of work earned.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.ingredients [--only NAME] [--seconds S] [--processor]
        [--toulbar2] [--lines FILE.jsonl] [--draw] [--picture FILE.svg] [--page FILE.html]

FOLDER holds meetings/. For each problem a line a run: the gap to the best utility of all runs after times; then what
each kind of work took and lowered the bound by (utility, and a second). Runs of one problem follow each other.
``--processor``: every run has one core, and its clock is that of the processor, as toulbar2's own is: what else goes on
on the machine does not count. ``--lines`` keeps every run as it ends, and those that are there are not run again;
``--draw`` runs nothing, and shows what is there. toulbar2's lines are the same for all clocks and devices: a machine
without it goes on with those of one that has it.
"""

import json
import os
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import dmcmc
from benchmarks.bounds.picture import picture
from benchmarks.bounds.without import INGREDIENTS, without
from benchmarks.harness import Report, meeting, one_core, options
from benchmarks.toulbar2 import search
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.report.pages.chart import Chart, Series, svg
from dmcmc.report.pages.page_template import page
from dmcmc.run.scheduler.proposal import BRANCH, SEMIDEFINITE

NAMES = ("ms_A10_n25_D24", "mu_A10_n25_D24", "ms_A10_n50_D24", "mu_A10_n50_D24", "mu_A10_n10_D96")
TIMES = (1, 2, 5, 10, 20, 30, 60)


class Way(NamedTuple):
    """Ingredients: the provider of bounds, and what is left out."""

    name: str
    bound: str
    left_out: Sequence[str]


WAYS = (
    Way("mini-buckets", "mini-bucket", INGREDIENTS),
    Way("pairs", "dual", INGREDIENTS),
    Way("triangles", "triangles", INGREDIENTS),
    Way("warm sweeps", "triangles", (BRANCH, SEMIDEFINITE)),
    Way("search in rows", "triangles", (SEMIDEFINITE,)),
    Way("all", "auto", ()),
)
PEER = "toulbar2"
COLOURS = {name: number for number, name in enumerate([*(way.name for way in WAYS), PEER])}
TITLE = "The gap over time, an ingredient of the bound after the other"


class Line(NamedTuple):
    """A run: points of time and bound, its best objective, what kinds of work took and brought, and the load."""

    name: str
    bounds: Sequence[tuple[float, float]]
    objective: float
    work: Sequence[tuple[str, float, float]] = ()
    load: float = 0.0

    def gaps(self, best: float) -> list[tuple[float, float]]:
        """Return times and gaps in percent."""
        return [(time, 100 * (bound - best) / best) for time, bound in self.bounds]


@contextmanager
def processor(wanted: bool) -> Iterator[None]:
    """Run on one core by the clock of the processor, where that is wanted."""
    if not wanted:
        yield
        return
    with one_core(), patch.object(time, "perf_counter", time.process_time):
        yield


def run(name: str, way: Way, given: Namespace) -> Line:
    """Solve a problem with some ingredients; toulbar2 is not beside it."""
    problem = dmcmc.load(meeting(name))
    with without(way.left_out), processor(given.processor):
        result = dmcmc.solve(
            problem, timeout=given.seconds, device=given.device, seed=1, bound=way.bound, search="none"
        )
    bounds = [(p.time, float(p.bound)) for p in result.trace if p.bound is not None]
    work = [(one.kind, one.seconds, one.bound) for one in result.work]
    return Line(way.name, bounds, float(result.objective or 0), work, os.getloadavg()[0])


def peer(name: str, given: Namespace) -> Line:
    """Let toulbar2 search a problem on one core."""
    with one_core():
        points = search(meeting(name), "hbfs", int(given.seconds))
    bounds = [(p.seconds, p.bound) for p in points if p.bound is not None]
    return Line(PEER, bounds, max((p.objective or 0 for p in points), default=0), (), os.getloadavg()[0])


class Kept:
    """Runs that are kept in a file, a line each."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        texts = path.read_text(encoding="utf-8").splitlines() if path is not None and path.is_file() else []
        self.lines = {one["key"]: Line(**one["line"]) for one in map(json.loads, texts)}

    def add(self, key: str, line: Line) -> None:
        """Keep a run."""
        self.lines[key] = line
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "line": line._asdict()}) + "\n")


def lines_of(name: str, kept: Kept, given: Namespace) -> list[Line]:
    """Return all runs of a problem; those that are not kept are carried out."""
    clock, lines = "processor" if given.processor else given.device, list[Line]()
    for way in WAYS:
        key = f"{name}|{way.name}|{given.seconds:g}|{clock}"
        if key not in kept.lines and not given.draw:
            kept.add(key, run(name, way, given))
        lines += [kept.lines[key]] if key in kept.lines else []
    key = f"{name}|{PEER}|{given.seconds:g}|processor"
    if given.toulbar2 and key not in kept.lines and not given.draw:
        kept.add(key, peer(name, given))
    lines += [kept.lines[key]] if key in kept.lines else []
    return lines


def told(line: Line, best: float, seconds: float) -> Iterator[str]:
    """Yield a run's lines."""
    gaps = line.gaps(best)
    shown = list[str]()
    for limit in sorted({*TIMES, seconds}):
        known = [gap for time, gap in gaps if time <= limit <= seconds]
        shown += [f"{limit:g} s {known[-1]:.3g} %"] if known else []
    yield f"  {line.name:<15} {'  '.join(shown)}  (objective {line.objective:g}, load {line.load:.1f})"
    for kind, took, brought in line.work:
        if took > 0:
            yield f"      {kind:<12} {took:6.2f} s  lowered by {brought:10.6g}  {brought / took:10.4g} a second"


def chart(name: str, lines: Sequence[Line], best: float, seconds: float) -> Chart:
    """Return the gaps of a problem's runs, to the end of the time."""
    series = []
    for line in lines:
        gaps = line.gaps(best)
        if gaps:
            gaps.append((max(seconds, gaps[-1][0]), gaps[-1][1]))
            points = [(t, g, g, g) for t, g in gaps if t > 0]
            series.append(Series(line.name, points, steps=True, colour=COLOURS[line.name]))
    return Chart(name, "seconds", "gap to the best known, %", series, log_x=True)


def main() -> None:
    """Measure, print and draw."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--device", default="cpu" if gpu_problem() is not None else "cuda")
    parser.add_argument("--processor", action="store_true", help="one core a run, by the processor's clock")
    parser.add_argument("--toulbar2", action="store_true", help="toulbar2 on one core as well")
    parser.add_argument("--lines", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--draw", action="store_true", help="what --lines has, without any run")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg")
    parser.add_argument("--page", type=Path, metavar="FILE.html")
    given = parser.parse_args()
    clock = "one core a run, processor seconds" if given.processor else "all cores but for toulbar2, which has one"
    say, drawn, kept = Report(__file__, given, device=given.device, clock=clock), list[Chart](), Kept(given.lines)
    shown = list[list[Line]]()
    for name in NAMES:
        if given.only not in name:
            continue
        lines = lines_of(name, kept, given)
        if not lines:
            continue
        best = max(line.objective for line in lines)
        shown.append(lines)
        say(name)
        for line in lines:
            for text in told(line, best, given.seconds):
                say(text)
        drawn.append(chart(name, lines, best, given.seconds))
    if given.picture is not None:
        notes = [
            f"Bounds of our runs, and of toulbar2 (hybrid best-first search); {clock}.",
            "A shared machine: load when runs ended "
            + " to ".join(f"{load(line.load for one in shown for line in one):.0f}" for load in (min, max)),
        ]
        replace_file(given.picture, picture(TITLE, notes, drawn).splitlines(keepends=True))
    if given.page is not None:
        replace_file(given.page, page(TITLE, map(svg, drawn)).splitlines(keepends=True))
    say.keep()


if __name__ == "__main__":
    main()
