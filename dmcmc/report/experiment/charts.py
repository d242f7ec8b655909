"""Make the charts of an experiment: time and quality by each varied key, and quality over time.

*Quality* is the objective divided by the reference of the instance: the best bound, or the objective of one method.
Confidence intervals of few runs may be many times as wide as the range of the means. Bands are therefore cut off a
little beyond the means, and where a quantity has a limit: times are positive, and utilities are at most their bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, inf, log
from typing import Any

from dmcmc.experiments.journal import Record
from dmcmc.report.experiment.names import case_title, quantities_of, value_of_base, values_text
from dmcmc.report.experiment.statistics import BOUND, Cell, Findings, Mean, ratio_of, reference_of
from dmcmc.report.experiment.tables import case_name
from dmcmc.report.pages.chart import Chart, LegendEntry, Series

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
            points_known = [_point(x, getattr(cell, attribute)) for x, cell in cell_at if _has(cell, attribute)]
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


def _point(x: float, mean: Mean) -> tuple[float, float, float, float]:
    """Return a point of a line as (x, mean, lower end, upper end of the 95 % confidence interval)."""
    half = mean.half or 0.0
    return x, mean.value, mean.value - half, mean.value + half


def over_time(findings: Findings) -> list[Chart]:
    """Return one chart per case: the quality of each method's best answer over time, as a mean over seeds."""
    compare = (findings.experiment.get("report") or {}).get("compare", BOUND)
    references, names = reference_of(findings.records, compare), quantities_of(findings)
    charts = []
    for case in findings.cases[:_MAX_CASES]:
        lines = []
        for number, method in enumerate(findings.methods):
            of_line = [r for r in findings.records if r["case"] == case and r["method"] == method]
            runs = [r for r in of_line if r["outcome"] == "done" and r.get("trace")]
            points = _mean_over_time(runs, references)
            if points:
                lines.append(Series(method, points, steps=True, colour=number))
        if lines:
            lines = fitted(lines, _limits_of_ratios(findings))
            title = f"{_capital(names.ratio)} over time: {case_title(case, findings)}"
            charts.append(Chart(title, "seconds", names.ratio, lines, True))
    return charts


def _mean_over_time(runs: Sequence[Record], references: Mapping[str, float]) -> list[tuple[float, float, float, float]]:
    """Return the mean quality over time, from the time on at which all runs have an answer.

    The points (seconds, mean, lower end, upper end) are equally spaced on a logarithmic axis from a millisecond to the
    end of the longest run. Empty if there is no run, or none takes longer than a millisecond.
    """
    last = max((float(run["time"]) for run in runs), default=0.0)
    if last <= _FIRST_SECONDS:
        return []
    points = []
    for i in range(_INTERVALS + 1):
        now = exp(log(_FIRST_SECONDS) + (log(last) - log(_FIRST_SECONDS)) * i / _INTERVALS)
        ratios = [ratio_of(run, references, _objective_at(run, now)) for run in runs]
        if None not in ratios and (mean := Mean.of(ratios)) is not None:
            points.append(_point(now, mean))
    return points


def _objective_at(run: Record, now: float) -> float | None:
    """Return the best objective that a run had found by a time in seconds; None before its first answer.

    The tolerance of 10^-9 covers the rounding of the times.
    """
    best: float | None = None
    for time, objective, _ in run["trace"]:
        if time <= now * (1 + 1e-9) and objective is not None:
            best = objective
    return best
