"""Measure the gap over time as methods for the bound are added one by one, compared with toulbar2.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.bound_methods [--only NAME] [--seconds S] [--processor]
        [--toulbar2] [--lines FILE.jsonl] [--draw] [--picture FILE.svg] [--page FILE.html]

FOLDER holds meetings/. For each problem, prints one line per run: the gap to the best utility of all runs after some
times; then the seconds of each improver, and by how much it lowered the bound (in total and per second). Runs of one
problem follow each other. ``--processor``: every run has one core, and its clock is processor time, as toulbar2's own
clock is, so that other load on the machine does not count. ``--lines`` saves every run as it ends; saved runs are
not repeated. ``--draw`` only shows saved runs. toulbar2's runs are the same for all clocks and devices, so a machine
without toulbar2 can use those of another one.
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
from benchmarks.bounds.chart_picture import picture
from benchmarks.bounds.disabled_methods import METHODS, disabled
from benchmarks.harness import Report, meeting, one_core, options
from benchmarks.toulbar2 import search
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.report.pages.chart import Chart, Series, svg
from dmcmc.report.pages.page_template import page
from dmcmc.results.improver_names import BRANCH, SEMIDEFINITE

NAMES = ("ms_A10_n25_D24", "mu_A10_n25_D24", "ms_A10_n50_D24", "mu_A10_n50_D24", "mu_A10_n10_D96")
TIMES = (1, 2, 5, 10, 20, 30, 60)


class Variant(NamedTuple):
    """A variant of the solver: a bound provider, and the methods that are disabled."""

    name: str
    bound: str
    left_out: Sequence[str]


VARIANTS = (
    Variant("mini-buckets", "mini-bucket", METHODS),
    Variant("pairs", "dual", METHODS),
    Variant("triangles", "triangles", METHODS),
    Variant("smoothed sweeps", "triangles", (BRANCH, SEMIDEFINITE)),
    Variant("branch and bound", "triangles", (SEMIDEFINITE,)),
    Variant("all methods", "auto", ()),
)
PEER = "toulbar2"
COLOURS = {name: number for number, name in enumerate([*(variant.name for variant in VARIANTS), PEER])}
TITLE = "The gap over time as methods for the bound are added"


class MethodRun(NamedTuple):
    """The result of one run.

    Attributes
    ----------
    name : str
        The variant.
    bounds : sequence of (float, float)
        Seconds, and the bound at that time.
    objective : float
        The best objective of the run.
    work : sequence of (str, float, float)
        For each improver: its name, its seconds, and the decrease of the bound.
    load : float
        Load average of the machine when the run ended.
    """

    name: str
    bounds: Sequence[tuple[float, float]]
    objective: float
    work: Sequence[tuple[str, float, float]] = ()
    load: float = 0.0

    def gaps(self, best: float) -> list[tuple[float, float]]:
        """Return the times and the gaps to ``best`` in per cent."""
        return [(time, 100 * (bound - best) / best) for time, bound in self.bounds]


@contextmanager
def processor_clock(wanted: bool) -> Iterator[None]:
    """Run the body on one core by the clock of the processor, if wanted."""
    if not wanted:
        yield
        return
    with one_core(), patch.object(time, "perf_counter", time.process_time):
        yield


def run(name: str, variant: Variant, given: Namespace) -> MethodRun:
    """Solve a problem with one variant, without toulbar2 in the background."""
    problem = dmcmc.load(meeting(name))
    with disabled(variant.left_out), processor_clock(given.processor):
        result = dmcmc.solve(
            problem, timeout=given.seconds, device=given.device, seed=1, bound=variant.bound, search="none"
        )
    bounds = [(p.time, float(p.bound)) for p in result.trace if p.bound is not None]
    work = [(one.improver, one.seconds, one.bound_gain) for one in result.work]
    return MethodRun(variant.name, bounds, float(result.objective or 0), work, os.getloadavg()[0])


def peer(name: str, given: Namespace) -> MethodRun:
    """Let toulbar2 search a problem on one core."""
    with one_core():
        points = search(meeting(name), "hbfs", int(given.seconds))
    bounds = [(p.seconds, p.bound) for p in points if p.bound is not None]
    return MethodRun(PEER, bounds, max((p.objective or 0 for p in points), default=0), (), os.getloadavg()[0])


class SavedRuns:
    """Runs that are saved in a file, one JSON line each.

    Attributes
    ----------
    path : Path or None
        The file.
    lines : dict of str to MethodRun
        The runs by their keys.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        texts = path.read_text(encoding="utf-8").splitlines() if path is not None and path.is_file() else []
        self.lines = {one["key"]: MethodRun(**one["line"]) for one in map(json.loads, texts)}

    def add(self, key: str, line: MethodRun) -> None:
        """Save a run."""
        self.lines[key] = line
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "line": line._asdict()}) + "\n")


def runs_of(name: str, saved: SavedRuns, given: Namespace) -> list[MethodRun]:
    """Return all runs of a problem; runs that are not saved are carried out."""
    clock, lines = "processor" if given.processor else given.device, list[MethodRun]()
    for variant in VARIANTS:
        key = f"{name}|{variant.name}|{given.seconds:g}|{clock}"
        if key not in saved.lines and not given.draw:
            saved.add(key, run(name, variant, given))
        lines += [saved.lines[key]] if key in saved.lines else []
    key = f"{name}|{PEER}|{given.seconds:g}|processor"
    if given.toulbar2 and key not in saved.lines and not given.draw:
        saved.add(key, peer(name, given))
    lines += [saved.lines[key]] if key in saved.lines else []
    return lines


def text_of(line: MethodRun, best: float, seconds: float) -> Iterator[str]:
    """Yield the lines that describe a run."""
    gaps = line.gaps(best)
    shown = list[str]()
    for limit in sorted({*TIMES, seconds}):
        known = [gap for time, gap in gaps if time <= limit <= seconds]
        shown += [f"{limit:g} s {known[-1]:.3g} %"] if known else []
    yield f"  {line.name:<15} {'  '.join(shown)}  (objective {line.objective:g}, load {line.load:.1f})"
    for improver, seconds_used, decrease in line.work:
        if seconds_used > 0:
            rate = decrease / seconds_used
            yield f"      {improver:<16} {seconds_used:6.2f} s  lowered by {decrease:10.6g}  {rate:10.4g} per second"


def chart(name: str, lines: Sequence[MethodRun], best: float, seconds: float) -> Chart:
    """Return the chart of the gaps of a problem's runs, up to the time limit."""
    series = []
    for line in lines:
        gaps = line.gaps(best)
        if gaps:
            gaps.append((max(seconds, gaps[-1][0]), gaps[-1][1]))
            points = [(t, g, g, g) for t, g in gaps if t > 0]
            series.append(Series(line.name, points, steps=True, colour=COLOURS[line.name]))
    return Chart(name, "seconds", "gap to the best known utility, %", series, log_x=True)


def main() -> None:
    """Measure, print and draw."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--device", default="cpu" if gpu_problem() is not None else "cuda")
    parser.add_argument("--processor", action="store_true", help="one core per run; time is processor time")
    parser.add_argument("--toulbar2", action="store_true", help="also run toulbar2, on one core")
    parser.add_argument("--lines", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--draw", action="store_true", help="only show the runs saved in --lines")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg")
    parser.add_argument("--page", type=Path, metavar="FILE.html")
    given = parser.parse_args()
    clock = "one core per run, processor seconds" if given.processor else "all cores, but one for toulbar2"
    report, drawn = Report(__file__, given, device=given.device, clock=clock), list[Chart]()
    saved = SavedRuns(given.lines)
    shown = list[list[MethodRun]]()
    for name in NAMES:
        if given.only not in name:
            continue
        lines = runs_of(name, saved, given)
        if not lines:
            continue
        best = max(line.objective for line in lines)
        shown.append(lines)
        report(name)
        for line in lines:
            for text in text_of(line, best, given.seconds):
                report(text)
        drawn.append(chart(name, lines, best, given.seconds))
    if given.picture is not None:
        notes = [
            f"Bounds of our runs, and of toulbar2 (hybrid best-first search); {clock}.",
            "Load average of the (shared) machine when runs ended: "
            + " to ".join(f"{load(line.load for one in shown for line in one):.0f}" for load in (min, max)),
        ]
        replace_file(given.picture, picture(TITLE, notes, drawn).splitlines(keepends=True))
    if given.page is not None:
        replace_file(given.page, page(TITLE, map(svg, drawn)).splitlines(keepends=True))
    report.keep()


if __name__ == "__main__":
    main()
