"""The gap over time with each ingredient of the bound added, beside toulbar2, and what each kind of work earned.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.ingredients [--only NAME] [--seconds S] [--page FILE.html]

FOLDER holds meetings/. A line a run: the gap to the best utility of all runs after times; then what each kind of work
took and lowered the bound by (utility, and a second). ``--page`` draws the gaps.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import dmcmc
from benchmarks.harness import Report, meeting, options
from benchmarks.toulbar2 import search
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.report.pages.chart import Chart, Series, svg
from dmcmc.report.pages.frame import page
from dmcmc.run.kinds import registry

NAMES = ("ms_A10_n25_D24", "mu_A10_n25_D24", "ms_A10_n50_D24", "mu_A10_n50_D24", "mu_A10_n10_D96")
TIMES = (1, 2, 5, 10, 20, 30, 60)
FIRST = ("eliminate", "sample", "bound", "filter")  # kinds of work that all ways have
WAYS: Sequence[
    tuple[str, str, Sequence[str] | None]
] = (  # the provider of bounds, and kinds of work beside the first; None: all that there are
    ("mini-buckets", "mini-bucket", ()),
    ("pairs", "dual", ()),
    ("triangles", "triangles", ()),
    ("search in rows", "triangles", ("branch",)),
    ("all", "auto", None),
)


class Line(NamedTuple):
    """A run: points of time and bound, its best objective, and what kinds of work took and brought."""

    name: str
    bounds: Sequence[tuple[float, float]]
    objective: float
    work: Sequence[tuple[str, float, float]] = ()

    def gaps(self, best: float) -> list[tuple[float, float]]:
        """Return times and gaps in percent."""
        return [(time, 100 * (bound - best) / best) for time, bound in self.bounds]


@contextmanager
def only(kinds: Sequence[str] | None) -> Iterator[None]:
    """Leave out the kinds of work that are not named."""
    own = [kind for kind in registry.OF_AGENTS if kinds is None or kind.name in (*FIRST, *kinds)]
    with patch.object(registry, "OF_AGENTS", own):
        yield


def run(name: str, way: str, bound: str, kinds: Sequence[str] | None, given: tuple[str, float]) -> Line:
    """Solve a problem with some ingredients, on a device for some seconds."""
    problem = dmcmc.load(meeting(name))
    with only(kinds):
        result = dmcmc.solve(problem, timeout=given[1], device=given[0], seed=1, bound=bound)
    bounds = [(p.time, float(p.bound)) for p in result.trace if p.bound is not None]
    work = [(one.kind, one.seconds, one.bound) for one in result.work]
    return Line(way, bounds, float(result.objective or 0), work)


def told(line: Line, best: float, seconds: float) -> Iterator[str]:
    """Yield a run's lines."""
    gaps = line.gaps(best)
    shown = list[str]()
    for limit in TIMES:
        known = [gap for time, gap in gaps if time <= limit <= seconds]
        shown += [f"{limit} s {known[-1]:.3g} %"] if known else []
    yield f"  {line.name:<15} {'  '.join(shown)}  (objective {line.objective:g})"
    for kind, took, brought in line.work:
        if took > 0 and brought > 0:
            yield f"      {kind:<12} {took:6.2f} s  lowered by {brought:10.6g}  {brought / took:10.4g} a second"


def main() -> None:
    """Measure, print and draw."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--device", default="cpu" if gpu_problem() is not None else "cuda")
    parser.add_argument("--toulbar2", action="store_true", help="toulbar2 on one core as well")
    parser.add_argument("--page", type=Path, metavar="FILE.html")
    given = parser.parse_args()
    say, drawn = Report(__file__, given, device=given.device), list[str]()
    for name in NAMES:
        if given.only not in name:
            continue
        means = (given.device, given.seconds)
        lines = [run(name, way, bound, kinds, means) for way, bound, kinds in WAYS]
        if given.toulbar2:
            points = search(meeting(name), "hbfs", int(given.seconds))
            bounds = [(p.seconds, p.bound) for p in points if p.bound is not None]
            lines.append(Line("toulbar2", bounds, max((p.objective or 0 for p in points), default=0)))
        best = max(line.objective for line in lines)
        say(name)
        for line in lines:
            for text in told(line, best, given.seconds):
                say(text)
        sys.stdout.flush()
        series = [
            Series(line.name, [(t, g, g, g) for t, g in line.gaps(best)], steps=True, colour=k)
            for k, line in enumerate(lines)
            if line.bounds
        ]
        drawn.append(svg(Chart(name, "seconds", "gap, %", series, log_x=True)))
    if given.page is not None:
        replace_file(
            given.page, page("The gap over time, an ingredient after the other", drawn).splitlines(keepends=True)
        )
    say.keep()


if __name__ == "__main__":
    main()
