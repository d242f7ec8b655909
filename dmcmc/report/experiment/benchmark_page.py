"""The page of the benchmark: quality over each measure, performance profiles, and a table of all methods.

The *quality* of an objective is 1 if it equals the best proven bound of its problem, and 0 if it is no better than the
mean of random assignments, or if there is no answer (:meth:`dmcmc.experiments.benchmark.BenchmarkProblem.quality`).
Confidence intervals are over problems.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import median

from dmcmc.experiments.benchmark import SIZES, BenchmarkProblem
from dmcmc.experiments.journal import COURSE, Record
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.errors import FileError
from dmcmc.report.experiment.charts import MEASURES, Point, Rows, course_of, fitted, latex, markdown, mean_line
from dmcmc.report.experiment.statistics import Mean, plain
from dmcmc.report.pages import Chart, Series, page, short, svg, table

EFFORTS = ("cycle", "messages", "bytes", "ncccs", "simulated_time", "time")
_LEAST_GAP = 1e-4  # smallest distance from the bound that profiles distinguish
_CLOSE = 0.01  # a problem counts as solved within this distance from the bound in profiles over effort
_NOTE = (
    "Quality is 1 at the best proven bound of a problem (its optimum, where that is proven) and 0 at the mean of random"
    " assignments or without an answer. Bands and numbers after ± are 95 % confidence intervals over problems. A method"
    " that has ended keeps its last answer. Methods without a measure are missing in its chart."
)


class BenchmarkRun:
    """The result of one method on one problem.

    Attributes
    ----------
    problem : BenchmarkProblem
        The problem.
    record : dict
        The line of the journal.
    quality : float
        Quality of the final answer.
    """

    def __init__(self, problem: BenchmarkProblem, record: Record) -> None:
        self.problem, self.record, self.quality = problem, record, problem.quality(record.get("objective"))

    def course(self, measure: str) -> list[tuple[float, float]]:
        """Return the values of a measure, each with the quality from there on; empty if the run did not record it."""
        pairs = course_of(self.record.get("course") or [], measure, "best")
        if measure == "time" and not pairs:
            pairs = [(time, best) for time, best, _ in self.record.get("trace") or [] if best is not None]
        return [(value, self.problem.quality(best)) for value, best in pairs]

    def effort(self, measure: str) -> float | None:
        """Return the final value of a measure; None if the run did not record it."""
        points = self.record.get("course") or []
        value = points[-1][COURSE.index(measure)] if points else self.record.get("time") if measure == "time" else None
        return float(value) if value else None


Runs = Mapping[str, Sequence[BenchmarkRun]]  # by method


def runs_of(problems: Sequence[BenchmarkProblem], records: Sequence[Record]) -> Runs:
    """Return the runs of each method on the problems; a later record replaces an earlier one of the same run.

    Raises
    ------
    FileError
        If there are none.
    """
    by_name = {problem.name: problem for problem in problems}
    latest = {record["key"]: record for record in records if record["case"].get("problem") in by_name}
    if not latest:
        raise FileError("benchmark page: there are no results of these problems; name the folders of runs")
    runs: dict[str, list[BenchmarkRun]] = {}
    for record in latest.values():
        runs.setdefault(record["method"], []).append(BenchmarkRun(by_name[record["case"]["problem"]], record))
    return dict(sorted(runs.items()))


def write_page(problems: Sequence[BenchmarkProblem], records: Sequence[Record], output: Path) -> list[Path]:
    """Write the page, and its table as Markdown and LaTeX next to it; return the files, the page first."""
    runs = runs_of(problems, records)
    contents = {output: page_of(problems, runs)}
    contents |= {output.with_suffix(".md"): markdown(*summary(runs)), output.with_suffix(".tex"): latex(*summary(runs))}
    for path, content in contents.items():
        replace_file(path, [content])
    return list(contents)


def summary(runs: Runs) -> tuple[list[str], Rows]:
    """Return the table: mean quality by size, and how often the best known value was reached and proven."""
    sizes = [size for size in SIZES if any(_of_size(runs, size).values())]
    rows = Rows()
    for method, group in runs.items():
        means = (Mean.of([run.quality for run in _of_size(runs, size)[method]]) for size in sizes)
        best = sum(run.problem.best is not None and run.record.get("objective") == run.problem.best for run in group)
        proven = sum(run.record.get("status") in ("optimal", "infeasible") for run in group)
        cells = ["–" if mean is None else mean.text(3) for mean in means]
        rows.append([method, *cells, str(best), str(proven), str(len(group))])
    return ["method", *(f"quality, {size}" for size in sizes), "best known", "proven", "runs"], rows


def _of_size(runs: Runs, size: str) -> Runs:
    """Return the runs on problems of one size."""
    return {method: [run for run in group if run.problem.size == size] for method, group in runs.items()}


def page_of(problems: Sequence[BenchmarkProblem], runs: Runs) -> str:
    """Return the web page."""
    proven = sum(problem.proven for problem in problems)
    parts = [f'<p class="soft">{len(problems)} problems, {proven} with a proven optimum. {escape(_NOTE)}</p>']
    parts += ["<h2>Results</h2>", table(*summary(runs)), "<h2>Effort</h2>", table(*_efforts(runs))]
    parts += _section("All sizes: performance profiles", _profiles(runs))
    for size in SIZES:
        count = sum(problem.size == size for problem in problems)
        charts = (_over(_of_size(runs, size), measure) for measure in EFFORTS)
        parts += _section(f"{size.capitalize()}: {count} problems", charts)
    failures = [run.record for group in runs.values() for run in group if run.record["outcome"] != "done"]
    rows = [[r["method"], r["case"]["problem"], r["outcome"], r.get("error", "")] for r in failures]
    if failures:
        parts += ["<h2>Failed runs</h2>", table(["method", "problem", "outcome", "error"], rows)]
    return page("Benchmark of DCOP algorithms", parts)


def _section(title: str, charts: Iterator[Chart]) -> list[str]:
    """Return a heading with charts; nothing if no chart has a line."""
    drawn = "\n".join(svg(chart) for chart in charts if chart.series)
    return [f'<h2>{escape(title)}</h2><div class="charts">{drawn}</div>'] if drawn else []


def _efforts(runs: Runs) -> tuple[list[str], Rows]:
    """Return a table of the median final value of each measure."""
    rows = Rows()
    for method, group in runs.items():
        efforts = ([value for run in group if (value := run.effort(m)) is not None] for m in EFFORTS)
        medians = (median(values) if values else None for values in efforts)
        rows.append([method, *("–" if m is None else short(m) if m >= 100 else plain(m, 3) for m in medians)])
    return ["median of a run", *(MEASURES[m].name for m in EFFORTS)], rows


def _over(runs: Runs, measure: str) -> Chart:
    """Return the chart of the mean quality over a measure."""
    lines, (name, first) = [], MEASURES[measure]
    for number, (method, group) in enumerate(runs.items()):
        courses = [[(0.0, 0.0), *run.course(measure)] for run in group if run.effort(measure) is not None]
        points = mean_line(courses, first)
        lines += [Series(method, points, steps=True, colour=number)] if points else []
    return Chart(f"Quality over {name}", name, "quality", fitted(lines, (0.0, 1.0)), log_x=True)


def _profiles(runs: Runs) -> Iterator[Chart]:
    """Yield the share of problems within a distance of the bound, and of those within 1 % over some measures."""
    within = []
    for number, (method, group) in enumerate(runs.items()):
        points = _shares([max(1 - run.quality, _LEAST_GAP) for run in group], len(group), _LEAST_GAP, 1.0)
        within.append(Series(method, points, steps=True, colour=number))
    yield Chart("Problems within a distance of the bound", "1 - quality", "share of problems", within, True)
    for measure in ("time", "messages", "ncccs"):
        lines, (name, first) = [], MEASURES[measure]
        for number, (method, group) in enumerate(runs.items()):
            courses = [run.course(measure) for run in group]
            solved = [next((max(x, first) for x, q in course if q >= 1 - _CLOSE), None) for course in courses]
            last = max((run.effort(measure) or 0.0 for run in group), default=0.0)
            if last > first:
                points = _shares([x for x in solved if x is not None], len(group), first, last)
                lines.append(Series(method, points, steps=True, colour=number))
        title = f"Problems within {100 * _CLOSE:g} % of the bound over {name}"
        yield Chart(title, name, "share of problems", lines, True)


def _shares(values: Sequence[float], count: int, first: float, last: float) -> list[Point]:
    """Return the share of values up to each x, from ``first`` to ``last``, as points of a step function."""
    shares = [(x, sum(value <= x for value in values) / count) for x in sorted({first, *values, last})]
    return [(x, y, y, y) for x, y in shares]
