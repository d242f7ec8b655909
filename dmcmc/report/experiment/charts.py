"""The charts and tables of an experiment: time and quality by each varied key, and quality over time.

*Quality* is the objective divided by the reference of the instance: the best bound, or the objective of one method.
Confidence intervals of few runs may be many times as wide as the range of the means. Bands are therefore cut off a
little beyond the means, and where a quantity has a limit: times are positive, and utilities are at most their bound.

Tables are written as Markdown, LaTeX and CSV. A row is a list of texts. An exclamation mark at the beginning of a cell
marks runs that failed; the web page highlights such a cell, and the other formats drop the mark.
"""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp, inf, log
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from dmcmc.experiments.journal import COURSE, Record
from dmcmc.files.document import suggestion
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.report.experiment.statistics import BOUND, Cell, Findings, Mean, plain, ratio_of, reference_of
from dmcmc.report.pages import Chart, LegendEntry, Series


class Quantities(NamedTuple):
    """The names of the quantities that an experiment measured.

    Attributes
    ----------
    objective, reference, time : str
        Names of the objective, of what it is divided by, and of the time.
    """

    objective: str
    reference: str
    time: str

    @property
    def ratio(self) -> str:
        """The name of the objective divided by its reference."""
        return f"{self.objective} / {self.reference}"


_TASKS = {  # task of all methods: names of its objective and of its time
    "mar": ("ln Z", "time of messages and tables"),
    "max-marginals": ("best objective", "time of messages and tables"),
    "bucket": ("largest entry of the message", "time of the largest bucket"),
}


def quantities_of(findings: Findings) -> Quantities:
    """Return the names of what the methods of an experiment measured: a task's own names, else utility or cost."""
    compare = (findings.experiment.get("report") or {}).get("compare", BOUND)
    reference = "best bound" if compare == BOUND else compare
    methods = findings.experiment.get("methods") or {}
    tasks = {(methods.get(name) or {}).get("task") for name in findings.methods}
    task = tasks.pop() if len(tasks) == 1 else None
    if task in _TASKS:
        objective, time = _TASKS[task]
        return Quantities(objective, reference, time)
    senses = {record["sense"] for record in findings.records if record.get("sense")}
    objective = {("max",): "utility", ("min",): "cost"}.get(tuple(senses), "objective")
    return Quantities(objective, reference, "time of a run")


def case_title(case: Mapping[str, Any], findings: Findings) -> str:
    """Return the name of a case for readers: its values with the names of their keys, files without folders.

    The case without changes is named after the values that the other cases change, if the configuration has them.
    """
    if case:
        return values_text(case)
    base = findings.experiment.get("base") or {}
    varied = dict.fromkeys(key for other in findings.cases for key in other)
    defaults = {key: value for key in varied if (value := value_of_base(base, key)) is not None}
    return f"default ({values_text(defaults)})" if defaults else "default"


def values_text(values: Mapping[str, Any]) -> str:
    """Return configuration keys and values as text.

    >>> values_text({"problem.file": "$FOLDER/spot5/54.wcsp.xz", "problem.generator": "grid", "problem.domain_size": 5})
    '54, grid, domain size 5'
    """
    texts = []
    for key, value in values.items():
        name = key.rpartition(".")[2].replace("_", " ")
        if name == "file":
            texts.append(PurePosixPath(str(value)).name.partition(".")[0])
        else:
            texts.append(str(value) if name in ("generator", "method") else f"{name} {value}")
    return ", ".join(texts)


def value_of_base(base: Any, key: str) -> Any:
    """Return the value of a dotted key in nested sections; None if it is missing."""
    for part in key.split("."):
        base = base.get(part) if isinstance(base, dict) else None
    return base


Rows = list[list[str]]
Point = tuple[float, float, float, float]  # of a line: x, mean, lower and upper end of its confidence interval


def case_name(case: Mapping[str, Any]) -> str:
    """Return the keys and values of a case as text.

    >>> case_name({"problem.agents": 5, "local.runs": 2}), case_name({})
    ('agents 5, runs 2', 'default')
    """
    named = (f"{key.rpartition('.')[2]} {_short(value)}" for key, value in case.items())
    return ", ".join(named) or "default"


def _short(value: Any) -> str:
    """Return a value as text; a path without its folders."""
    return str(value).rpartition("/")[2] if isinstance(value, str) else str(value)


def summary(findings: Findings) -> tuple[list[str], Rows, frozenset[int]]:
    """Return the headings and rows of the main table, and the indices of the rows that begin a case.

    The name of a case stands only in its first row.
    """
    names = quantities_of(findings)
    head = ["case", "method", names.objective, names.ratio, "gap", f"{names.time} (s)", "simulated time (s)"]
    head += ["messages", "runs proven", "runs with answer", "runs"]
    rows, groups, last = Rows(), set[int](), None
    for cell in findings.cells:
        name = case_title(cell.case, findings)
        if name != last:
            groups.add(len(rows))
        rows.append([name if name != last else "", cell.method, *_numbers(cell)])
        last = name
    return head, rows, frozenset(groups)


_NARROW = (0, 1, 2, 3, 5, 7, 8)  # columns of the main table that fit a page of a paper


def narrow(head: Sequence[str], rows: Rows) -> tuple[list[str], Rows]:
    """Return the main table with the columns that fit a page, without those that have no numbers."""
    kept = [i for i in _NARROW if i < 2 or any(row[i] != "–" for row in rows)]
    return [head[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _numbers(cell: Cell) -> list[str]:
    """Return the numbers of one line of the main table."""
    answers = str(cell.feasible)
    if cell.failures:
        reasons = ", ".join(f"{number} {outcome}" for outcome, number in cell.failures.items())
        answers = f"!{cell.feasible} ({reasons})"
    means = (cell.objective, cell.ratio, cell.gap, cell.time, cell.simulated_time, cell.messages)
    numbers = [_text(mean) for mean in means]
    if not cell.answered:
        numbers[0] = "!no answer"
    return [*numbers, str(cell.proven), answers, str(cell.runs)]


def _text(mean: Mean | None) -> str:
    """Return a mean as text; a dash if there is none."""
    return "–" if mean is None else mean.text()


def published_and_measured(findings: Findings) -> tuple[list[str], Rows]:
    """Return the headings and rows of a table of published numbers with those of this experiment.

    Only cases that were run have rows. For times the last column is the published number divided by the measured one.
    """
    cells = {(case_name(cell.case), cell.method): cell for cell in findings.cells}
    names = ("time", "simulated_time", "objective", "ratio", "bound")
    known = {name for name, _ in cells}  # with --quick only some cases
    published = [row for row in findings.experiment.get("paper") or [] if case_name(row.get("case", {})) in known]
    shown = [name for name in names if any(name in row for row in published)]
    headings = {"time": "time (s)", "simulated_time": "simulated time (s)"}
    head = ["case", "method"]
    for name in shown:
        head += [f"{headings.get(name, name)}, paper", "this run"]
        head += ["paper / this run"] if "time" in name else []
    rows = Rows()
    for row in published:
        cell = cells.get((case_name(row.get("case", {})), str(row["method"])))
        line = [case_title(row.get("case", {}), findings), str(row["method"])]
        for name in shown:
            published_value = row.get(name)
            measured_mean: Mean | None = None if cell is None or name == "bound" else getattr(cell, name)
            line += [_published(published_value), _text(measured_mean)]
            if "time" in name:
                measured = 0.0 if measured_mean is None else measured_mean.value
                comparable = isinstance(published_value, int | float) and measured
                line.append(plain(published_value / measured, 3) if comparable else "–")
        rows.append(line)
    return head, rows


def _published(value: Any) -> str:
    """Return a published number as text; a dash if there is none."""
    return "–" if value is None else plain(float(value), 5) if isinstance(value, int | float) else str(value)


def markdown(head: Sequence[str], rows: Rows) -> str:
    """Return a table as Markdown."""
    lines = [f"| {' | '.join(map(_markdown_cell, head))} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(_markdown_cell(cell.removeprefix('!')) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _markdown_cell(text: str) -> str:
    r"""Return text as a cell of a Markdown table: on one line, without effect as markup or HTML.

    >>> print(_markdown_cell("<b>a|b\n*c*"))
    &lt;b>a\|b \*c\*
    """
    escaped = _one_line(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{c}" if c in _MARKDOWN_SPECIAL else c for c in escaped)


_MARKDOWN_SPECIAL = "\\|`*[]"  # an underscore inside a word is text
_SPACES = re.compile(r"\s+")


def _one_line(text: str) -> str:
    """Return text on one line, without control characters."""
    return "".join(c for c in _SPACES.sub(" ", text) if c.isprintable())


def latex(head: Sequence[str], rows: Rows, groups: frozenset[int] = frozenset()) -> str:
    """Return a table as LaTeX (package booktabs), with a rule above each row of ``groups``."""
    lines = [f"\\begin{{tabular}}{{l{'l' if head[1] == 'method' else 'r'}{'r' * (len(head) - 2)}}}", "\\toprule"]
    lines += [" & ".join(map(_escaped, head)) + " \\\\", "\\midrule"]
    for number, row in enumerate(rows):
        lines += ["\\midrule"] if number and number in groups else []
        lines.append(" & ".join(_escaped(cell.removeprefix("!")) for cell in row) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


_LATEX = {
    "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "$": "\\$", "&": "\\&", "%": "\\%", "_": "\\_", "#": "\\#",
    "^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "<": "\\textless{}", ">": "\\textgreater{}",
    "|": "\\textbar{}", "±": "$\\pm$", "–": "--",
}  # fmt: skip


def _escaped(text: str) -> str:
    r"""Return text on one line with the special characters of LaTeX escaped.

    A bracket or an asterisk in front is put in braces: after the end of a row it would be an option of ``\\``.

    >>> print(_escaped("50 % of {x^2} & [y]"), _escaped("[y]"))
    50 \% of \{x\textasciicircum{}2\} \& [y] {[}y]
    """
    escaped = "".join(_LATEX.get(c, c) for c in _one_line(text))
    return f"{{{escaped[0]}}}{escaped[1:]}" if escaped.startswith(("[", "*")) else escaped


def values(findings: Findings) -> str:
    """Return all runs as CSV, one line per run."""
    keys = list(dict.fromkeys(key for record in findings.records for key in record["case"]))
    names = ["outcome", "status", "objective", "bound", "gap", "violation", "time", "simulated_time", "msg_count"]
    names += ["msg_size", "cycle", "error"]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_csv_cell, [*keys, "method", "seed", *names]))
    for record in findings.records:
        case = [record["case"].get(key, "") for key in keys]
        fields = ["" if record.get(name) is None else record[name] for name in names]
        writer.writerow(map(_csv_cell, [*case, record["method"], record["seed"], *fields]))
    return stream.getvalue()


def _csv_cell(value: Any) -> Any:
    """Return a value as a cell that a spreadsheet does not take for a formula; numbers stay numbers.

    >>> [_csv_cell(value) for value in (-3, "-2.5", "=1+1", "-a", "+", "a")]
    [-3, '-2.5', "'=1+1", "'-a", "'+", 'a']
    """
    if isinstance(value, bool | int | float):
        return value
    text = str(value)
    if not text.startswith(_FORMULA_STARTS):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets evaluate cells that begin so


_INTERVALS = 40  # parts that the time axis is divided into; a line has one more point
_FIRST_SECONDS = 1e-3  # start of the logarithmic time axis
_BAND_MARGIN = 0.25  # how far a band may reach beyond the means, as a share of their range
_LOG_BAND_MARGIN = 2.0  # the same on a logarithmic axis: the least factor
_MAX_CASES = 12  # limit for the number of charts over time; the first cases are shown


def charts_of(findings: Findings) -> list[Chart]:
    """Return all charts for which there are results; ``findings`` are the results of the experiment."""
    charts = []
    for key, others in varied(findings):
        points = _along(findings, key, others)
        if len(points) >= 2:
            charts += _scaling(findings, key, others, points)
    return charts + over_time(findings)


def varied(findings: Findings) -> list[tuple[str, dict[str, Any]]]:
    """Return the numeric keys in which cases differ, each with the values of all other keys.

    Cases that differ only in the key form the points of one chart.
    """
    pairs: dict[str, tuple[str, dict[str, Any]]] = {}
    for case in findings.cases:
        for key, value in case.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                others = {k: v for k, v in case.items() if k != key}
                pairs.setdefault(f"{key} {others}", (key, others))
    return list(pairs.values())


def _along(findings: Findings, key: str, others: Mapping[str, Any]) -> dict[float, Mapping[str, Any]]:
    """Return the cases with the given other keys, by the value of ``key`` in the case or in the base configuration."""
    points: dict[float, Mapping[str, Any]] = {}
    for case in findings.cases:
        if {k: v for k, v in case.items() if k != key} != others:
            continue
        value = case.get(key, value_of_base(findings.experiment.get("base") or {}, key))
        if isinstance(value, int | float):
            points[float(value)] = case
    return dict(sorted(points.items()))


def _scaling(
    findings: Findings, key: str, others: Mapping[str, Any], points: Mapping[float, Mapping[str, Any]]
) -> list[Chart]:
    """Return the charts of time and quality by one key.

    Parameters
    ----------
    findings
        The results of the experiment.
    key, others
        The varied configuration key, and the keys and values that all cases of the chart share.
    points
        The case at each value of ``key``, in ascending order.
    """
    cells = {(case_name(cell.case), cell.method): cell for cell in findings.cells}
    name, case_text = key.rpartition(".")[2].replace("_", " "), f" ({values_text(others)})" if others else ""
    names = quantities_of(findings)
    values = list(points)
    # A logarithmic axis if the values span a factor of 4 or more.
    is_log_x = values[0] > 0 and values[-1] / values[0] >= 4

    def series(attribute: str) -> list[Series]:
        lines = []
        for number, method in enumerate(findings.methods):
            cell_at = [(x, cells.get((case_name(case), method))) for x, case in points.items()]
            points_known = [point_of(x, getattr(cell, attribute)) for x, cell in cell_at if _has(cell, attribute)]
            lines.append(Series(method, points_known, colour=number))
        return [line for line in lines if line.points]

    unanswered = [
        LegendEntry(f"{method}: no answer", number)
        for number, method in enumerate(findings.methods)
        if (of_method := [c for case in points.values() if (c := cells.get((case_name(case), method)))])
        and not any(cell.answered for cell in of_method)
    ]
    title = f"{_capital(names.time)} by {name}{case_text}"
    times = fitted(series("time"), is_log=True)
    charts = [Chart(title, name, "seconds", times, is_log_x, True, legend=unanswered)]
    ratio = fitted(series("ratio"), _limits_of_ratios(findings))
    if any(point[1] != 1.0 for line in ratio for point in line.points):  # else there is nothing to see
        title = f"{_capital(names.ratio)} by {name}{case_text}"
        charts.append(Chart(title, name, names.ratio, ratio, is_log_x, legend=unanswered))
    return charts


def _capital(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def _limits_of_ratios(findings: Findings) -> tuple[float, float]:
    """Return the limits of ratios to a bound, 1 on one side; no limits for ratios to the objective of a method."""
    means = [cell.ratio.value for cell in findings.cells if cell.ratio is not None]
    if (findings.experiment.get("report") or {}).get("compare", BOUND) != BOUND or not means:
        return -inf, inf
    return (1.0 if min(means) >= 1 else -inf), (1.0 if max(means) <= 1 else inf)


def fitted(lines: Sequence[Series], limits: tuple[float, float] = (-inf, inf), is_log: bool = False) -> list[Series]:
    """Return lines with bands that fit the range of their means.

    Parameters
    ----------
    lines
        Lines with confidence intervals.
    limits
        The smallest and the largest possible value.
    is_log
        Whether the axis is logarithmic.
    """
    means = [point[1] for line in lines for point in line.points if not is_log or point[1] > 0]
    if not means:
        return list(lines)
    low, high = min(means), max(means)
    if is_log:
        factor = max(_LOG_BAND_MARGIN, (high / low) ** _BAND_MARGIN)
        low, high = low / factor, high * factor
    else:
        margin = _BAND_MARGIN * (high - low) or 0.01 * abs(high)
        low, high = low - margin, high + margin
    lowest, highest = max(low, limits[0]), min(high, limits[1])

    def cut(point: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        x, y, band_low, band_high = point
        return x, y, min(y, max(band_low, lowest)), max(y, min(band_high, highest))

    return [replace(line, points=[cut(point) for point in line.points]) for line in lines]


def _has(cell: Cell | None, attribute: str) -> bool:
    """Return whether a cell has a mean of this name."""
    return cell is not None and getattr(cell, attribute) is not None


def point_of(x: float, mean: Mean) -> tuple[float, float, float, float]:
    """Return a point of a line as (x, mean, lower end, upper end of the 95 % confidence interval)."""
    half = mean.half or 0.0
    return x, mean.value, mean.value - half, mean.value + half


def over_time(findings: Findings) -> list[Chart]:
    """Return one chart per case: the quality of each method's best answer over time, as a mean over seeds."""
    compare = (findings.experiment.get("report") or {}).get("compare", BOUND)
    references, ratio = reference_of(findings.records, compare), quantities_of(findings).ratio

    def points(runs: Sequence[Record]) -> list[Point]:
        return _mean_over_time([run for run in runs if run.get("trace")], references)

    return _of_cases(findings, Chart(f"{ratio} over time", "seconds", ratio), points, _limits_of_ratios(findings))


def over_measure(findings: Findings, x: str, y: str) -> list[Chart]:
    """Return one chart per case: a measure of the course of each method over another one, as a mean over seeds."""
    check_measures(x, y)

    def points(runs: Sequence[Record]) -> list[Point]:
        return mean_line([course_of(run.get("course") or [], x, y) for run in runs], MEASURES[x].first)

    (x_name, _), (y_name, _) = MEASURES[x], MEASURES[y]
    return _of_cases(findings, Chart(f"{y_name} over {x_name}", x_name, y_name), points)


def _of_cases(
    findings: Findings,
    chart: Chart,
    points: Callable[[Sequence[Record]], list[Point]],
    limits: tuple[float, float] = (-inf, inf),
) -> list[Chart]:
    """Return a chart for each case with a line per method, whose points come from its finished runs."""
    charts = []
    for case in findings.cases[:_MAX_CASES]:
        lines = []
        for number, method in enumerate(findings.methods):
            of_line = [r for r in findings.records if r["case"] == case and r["method"] == method]
            found = points([record for record in of_line if record["outcome"] == "done"])
            lines += [Series(method, found, steps=True, colour=number)] if found else []
        title = f"{_capital(chart.title)}: {case_title(case, findings)}"
        charts += [replace(chart, title=title, series=fitted(lines, limits), log_x=True)] if lines else []
    return charts


def _mean_over_time(runs: Sequence[Record], references: Mapping[str, float]) -> list[Point]:
    """Return the mean quality over time, from the time on at which all runs have an answer."""
    courses = []
    for run in runs:
        found = [(float(time), ratio_of(run, references, objective)) for time, objective, _ in run["trace"]]
        known = [(time, ratio) for time, ratio in found if ratio is not None]
        courses.append([*known, (float(run["time"]), known[-1][1])] if known else [])
    return mean_line(courses, _FIRST_SECONDS)


def mean_line(courses: Sequence[Sequence[tuple[float, float]]], first: float) -> list[Point]:
    """Return the mean of some quantity of several runs over a measure such as time.

    Parameters
    ----------
    courses
        For each run pairs of the measure and the quantity from there on, in ascending order of the measure.
    first
        Start of the logarithmic axis.

    Returns
    -------
    list of (x, mean, lower end, upper end)
        Points equally spaced on the axis up to the end of the longest run, without those at which a run has no value
        yet. Empty if no run is longer than ``first``.
    """
    last = max((course[-1][0] for course in courses if course), default=0.0)
    if last <= first:
        return []
    points = []
    for i in range(_INTERVALS + 1):
        now = exp(log(first) + (log(last) - log(first)) * i / _INTERVALS)
        values = [_value_at(course, now) for course in courses]
        if None not in values and (mean := Mean.of(values)) is not None:
            points.append(point_of(now, mean))
    return points


def _value_at(course: Sequence[tuple[float, float]], now: float) -> float | None:
    """Return the last value up to a point of the axis; None before the first. 1e-9 covers the rounding of times."""
    value: float | None = None
    for at, found in course:
        if at > now * (1 + 1e-9):
            break
        value = found
    return value


def course_of(points: Sequence[Sequence[Any]], x: str, y: str) -> list[tuple[float, float]]:
    """Return the pairs of two measures in the stored course of a run; empty where ``x`` was not recorded."""
    at_x, at_y = COURSE.index(x), COURSE.index(y)
    pairs = [(float(point[at_x]), float(point[at_y])) for point in points if point[at_y] is not None]
    return pairs if any(value for value, _ in pairs) else []


class Measure(NamedTuple):
    """A measure of the course of a run: its name on an axis, and where its logarithmic axis begins."""

    name: str
    first: float


MEASURES = {
    "cycle": Measure("cycles", 1.0),
    "messages": Measure("messages", 1.0),
    "bytes": Measure("bytes sent", 1.0),
    "ncccs": Measure("non-concurrent constraint checks", 1.0),
    "operations": Measure("non-concurrent logical operations", 1.0),
    "simulated_time": Measure("simulated seconds", 1e-4),
    "time": Measure("seconds", 1e-3),
    "now": Measure("objective", 1.0),
    "best": Measure("best objective so far", 1.0),
}


def check_measures(x: str | None, y: str | None) -> None:
    """Raise a ``ConfigError`` for an unknown measure."""
    for option, name in (("--x", x), ("--y", y)):
        if name is not None and name not in MEASURES:
            raise ConfigError(f"{option}: unknown measure '{name}'; {suggestion(name, MEASURES, 'measures')}")
