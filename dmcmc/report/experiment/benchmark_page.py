"""The page of the benchmark: quality over each measure, performance profiles, and a table of all methods.

The *quality* of an objective is 1 if it equals the best proven bound of its problem, and 0 if it is no better than the
mean of random assignments, or if there is no answer (:meth:`dmcmc.experiments.benchmark.BenchmarkProblem.quality`).
Confidence intervals are over problems.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import median

from dmcmc.experiments.benchmark import SIZES, BenchmarkProblem
from dmcmc.experiments.journal import COURSE, Record
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.errors import FileError
from dmcmc.report.experiment.charts import MEASURES, Point, Rows, fitted, latex, markdown, mean_line
from dmcmc.report.experiment.statistics import Mean, plain
from dmcmc.report.pages import Chart, Series, page, short, svg, table

EFFORTS = ("cycle", "messages", "bytes", "ncccs", "simulated_time", "time")
_BEST = COURSE.index("best")
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
    method : str
        Name of the method.
    record : dict
        The line of the journal.
    quality : float
        Quality of the final answer.
    """

    def __init__(self, problem: BenchmarkProblem, record: Record) -> None:
        self.problem, self.record, self.method = problem, record, str(record["method"])
        self.quality = problem.quality(record.get("objective"))

    def course(self, measure: str) -> list[tuple[float, float]]:
        """Return the values of a measure, each with the quality from there on; empty if the run did not record it."""
        points = self.record.get("course") or []
        if points:
            at = COURSE.index(measure)
            found = [(float(point[at]), self.problem.quality(point[_BEST])) for point in points]
        else:
            trace = self.record.get("trace") or [] if measure == "time" else []
            found = [(float(time), self.problem.quality(objective)) for time, objective, _ in trace]
        return found if any(value for value, _ in found) else []

    def effort(self, measure: str) -> float | None:
        """Return the final value of a measure; None if the run did not record it."""
        points = self.record.get("course") or []
        value = points[-1][COURSE.index(measure)] if points else self.record.get("time") if measure == "time" else None
        return float(value) if value else None

    def solved_at(self, measure: str) -> float | None:
        """Return the least value of a measure at which the quality was close to 1; None if there is none."""
        return next((value for value, quality in self.course(measure) if quality >= 1 - _CLOSE), None)


def runs_of(problems: Sequence[BenchmarkProblem], records: Sequence[Record]) -> dict[str, list[BenchmarkRun]]:
    """Return the runs of each method on the problems; a later record replaces an earlier one of the same run.

    Raises
    ------
    FileError
        If there are none.
    """
    by_name = {problem.name: problem for problem in problems}
    latest = {record["key"]: record for record in records if record["case"].get("problem") in by_name}
    runs: dict[str, list[BenchmarkRun]] = {}
    for record in latest.values():
        run = BenchmarkRun(by_name[record["case"]["problem"]], record)
        runs.setdefault(run.method, []).append(run)
    if not runs:
        raise FileError("benchmark page: there are no results of these problems; name the folders of runs")
    return dict(sorted(runs.items()))


def write_page(problems: Sequence[BenchmarkProblem], records: Sequence[Record], output: Path) -> list[Path]:
    """Write the page, and its table as Markdown and LaTeX next to it; return the files, the page first."""
    runs = runs_of(problems, records)
    head, rows = summary(runs)
    contents = {
        output: page_of(problems, runs),
        output.with_suffix(".md"): markdown(head, rows),
        output.with_suffix(".tex"): latex(head, rows),
    }
    for path, content in contents.items():
        replace_file(path, [content])
    return list(contents)


def summary(runs: Mapping[str, Sequence[BenchmarkRun]]) -> tuple[list[str], Rows]:
    """Return the table: mean quality by size, and how often the best known value was reached and proven."""
    sizes = [size for size in SIZES if any(run.problem.size == size for group in runs.values() for run in group)]
    head = ["method", *(f"quality, {size}" for size in sizes), "best known", "proven", "runs"]
    rows = Rows()
    for method, group in runs.items():
        means = (Mean.of([run.quality for run in group if run.problem.size == size]) for size in sizes)
        best = sum(run.problem.best is not None and run.record.get("objective") == run.problem.best for run in group)
        proven = sum(run.record.get("status") == "optimal" for run in group)
        cells = ["–" if mean is None else mean.text() for mean in means]
        rows.append([method, *cells, str(best), str(proven), str(len(group))])
    return head, rows


def page_of(problems: Sequence[BenchmarkProblem], runs: Mapping[str, Sequence[BenchmarkRun]]) -> str:
    """Return the web page."""
    head, rows = summary(runs)
    proven = sum(problem.proven for problem in problems)
    parts = [f'<p class="soft">{len(problems)} problems, {proven} with a proven optimum. {escape(_NOTE)}</p>']
    parts += ["<h2>Results</h2>", table(head, rows), "<h2>Effort</h2>", table(*_efforts(runs))]
    parts += _section("All sizes: performance profiles", _profiles(runs))
    for size in SIZES:
        of_size = {method: [run for run in group if run.problem.size == size] for method, group in runs.items()}
        count = sum(problem.size == size for problem in problems)
        parts += _section(f"{size.capitalize()}: {count} problems", [_over(of_size, measure) for measure in EFFORTS])
    parts += _failures(runs)
    return page("Benchmark of DCOP algorithms", parts)


def _section(title: str, charts: Sequence[Chart]) -> list[str]:
    """Return a heading with charts; nothing if no chart has a line."""
    drawn = "\n".join(svg(chart) for chart in charts if chart.series)
    return [f'<h2>{escape(title)}</h2><div class="charts">{drawn}</div>'] if drawn else []


def _efforts(runs: Mapping[str, Sequence[BenchmarkRun]]) -> tuple[list[str], Rows]:
    """Return a table of the median final value of each measure."""
    rows = Rows()
    for method, group in runs.items():
        efforts = [[effort for run in group if (effort := run.effort(m)) is not None] for m in EFFORTS]
        medians = [median(values) if values else None for values in efforts]
        texts = ["–" if m is None else short(m) if m >= 100 else plain(m, 3) for m in medians]
        rows.append([method, *texts])
    return ["median of a run", *(MEASURES[m].name for m in EFFORTS)], rows


def _over(runs: Mapping[str, Sequence[BenchmarkRun]], measure: str) -> Chart:
    """Return the chart of the mean quality over a measure."""
    lines, (name, first) = [], MEASURES[measure]
    for number, (method, group) in enumerate(runs.items()):
        courses = [[(0.0, 0.0), *course] for run in group if (course := run.course(measure))]
        points = mean_line(courses, first)
        lines += [Series(method, points, steps=True, colour=number)] if points else []
    return Chart(f"Quality over {name}", name, "quality", fitted(lines, (0.0, 1.0)), log_x=True)


def _profiles(runs: Mapping[str, Sequence[BenchmarkRun]]) -> list[Chart]:
    """Return the share of problems within a distance of the bound, and those within 1 % over time and messages."""
    within, charts = [], []
    for number, (method, group) in enumerate(runs.items()):
        points = _steps([max(1 - run.quality, _LEAST_GAP) for run in group], len(group), _LEAST_GAP, 1.0)
        within.append(Series(method, points, steps=True, colour=number))
    charts.append(Chart("Problems within a distance of the bound", "1 - quality", "share of problems", within, True))
    for measure in ("time", "messages", "ncccs"):
        name, first = MEASURES[measure]
        lines = []
        for number, (method, group) in enumerate(runs.items()):
            efforts = [effort for run in group if (effort := run.effort(measure)) is not None]
            solved = [max(at, first) for run in group if (at := run.solved_at(measure)) is not None]
            if efforts:
                points = _steps(solved, len(group), first, max(*efforts, first))
                lines.append(Series(method, points, steps=True, colour=number))
        title = f"Problems within {100 * _CLOSE:g} % of the bound over {name}"
        charts.append(Chart(title, name, "share of problems", lines, True))
    return charts


def _steps(values: Sequence[float], count: int, first: float, last: float) -> list[Point]:
    """Return the share of values up to each x, from ``first`` to ``last``, as points of a step function."""
    shares = [(x, sum(value <= x for value in values) / count) for x in sorted({first, *values, max(last, first)})]
    return [(x, y, y, y) for x, y in shares]


def _failed(group: Sequence[BenchmarkRun]) -> list[BenchmarkRun]:
    """Return the runs that failed or exceeded a limit."""
    return [run for run in group if run.record["outcome"] != "done"]


def _failures(runs: Mapping[str, Sequence[BenchmarkRun]]) -> list[str]:
    """Return a table of the failed runs by method, with up to three reasons; empty if there are none."""
    rows = Rows()
    for method, group in runs.items():
        reasons = dict.fromkeys(f"{r.record['outcome']}: {r.record.get('error', '')}" for r in _failed(group))
        rows += [[method, reason, str(len(_failed(group)))] for reason in list(reasons)[:3]]
    return ["<h2>Failed runs</h2>", table(["method", "reason", "failed runs"], rows)] if rows else []
