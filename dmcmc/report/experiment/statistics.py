"""Summarise the runs of each case and method: means with confidence intervals, ratios and failures.

A *case* is a combination of configuration keys and values that an experiment varies. A *method* is a named set of keys
and values that solves all cases. A *record* is the result of one run, as the journal stores it
(:mod:`dmcmc.experiments.job` describes its keys). An *instance* is one generated problem: a case with a seed. The
*reference* of an instance is the objective or bound that all its objectives are divided by.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, fsum, hypot, isfinite, log10, sqrt
from pathlib import Path
from typing import Any, Self

from dmcmc.experiments.journal import Record, has_answer, read_records, reason_without_answer
from dmcmc.experiments.plan import PLAN, RESULTS, read_plan
from dmcmc.inference.runtime.errors import FileError

BOUND = "bound"  # value of the key ``report.compare``: objectives are divided by the best bound
# Two-sided 95 % quantiles of Student's t distribution for 1 to 30 degrees of freedom, then the normal one.
_T_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL_QUANTILE = 1.96


@dataclass(frozen=True)
class Mean:
    """A mean with its confidence interval.

    Attributes
    ----------
    value : float
        The mean.
    half : float or None
        Half of the width of the 95 % confidence interval, t · s / √n with Student's t and the standard deviation s of n
        values; None for a single value.
    """

    value: float
    half: float | None

    @classmethod
    def of(cls, values: Sequence[float | int | None]) -> "Mean | None":
        """Return the mean of the values that are not None; None if there are none.

        >>> Mean.of([1, 2, 3, None])  # doctest: +ELLIPSIS
        Mean(value=2.0, half=2.484...)
        """
        known = [float(v) for v in values if v is not None]
        if not known:
            return None
        n, mean = len(known), fsum(known) / len(known)
        if n == 1:
            return cls(mean, None)
        deviation = hypot(*(v - mean for v in known)) / sqrt(n - 1)  # squares of large objectives would overflow
        return cls(mean, (_T_QUANTILES[n - 2] if n - 2 < len(_T_QUANTILES) else _NORMAL_QUANTILE) * deviation / sqrt(n))

    def text(self, digits: int = 4) -> str:
        """Return the mean and its interval as text: two digits of the interval, and the mean as far as these reach.

        A mean without an interval has ``digits`` significant digits.

        >>> Mean(1234.567, 12.34).text(), Mean(0.98765, 0.0123).text(), Mean(56789.0, 1234.0).text()
        ('1235 ± 12', '0.988 ± 0.012', '56800 ± 1200')
        """
        if self.half is None:
            return plain(self.value, digits)
        if not _LEAST_DECIMAL <= self.half < _FIRST_EXPONENT:
            return f"{plain(self.value, digits)} ± {plain(self.half, 2)}"
        decimals = 1 - floor(log10(self.half))
        mean, half = (f"{round(number, decimals):.{max(0, decimals)}f}" for number in (self.value, self.half))
        return f"{mean} ± {half}"


_LEAST_DECIMAL, _FIRST_EXPONENT = 1e-5, 1e12  # numbers in between are written without an exponent


def plain(value: float, digits: int) -> str:
    """Return a number with ``digits`` significant digits, without an exponent unless it is very large or small.

    >>> plain(12345.678, 4), plain(0.012345, 3), plain(0, 4)
    ('12346', '0.0123', '0')
    """
    if value == 0 or not _LEAST_DECIMAL <= abs(value) < _FIRST_EXPONENT:
        return f"{value:.{digits}g}"
    return (
        f"{value:.0f}"
        if abs(value) >= 10 ** (digits - 1)
        else f"{float(f'{value:.{digits}g}'):.{digits + 5}f}".rstrip("0").rstrip(".")
    )


@dataclass(frozen=True)
class Cell:
    """Summary of all runs of one case and one method.

    Attributes
    ----------
    case : dict
        Configuration keys and values of the case.
    method : str
        Name of the method.
    runs, done, proven, feasible, answered : int
        Number of runs; of those that finished; that proved optimality or infeasibility; that found an assignment
        without broken constraints; that did at least one of the latter two.
    objective, ratio, gap, time, simulated_time, messages : Mean or None
        Means over the finished runs that have a value; None if no run has one. ``time`` and ``simulated_time`` are in
        seconds, ``messages`` is a number. ``ratio`` is the objective divided by the reference of the instance.
    failures : dict of str to int
        Number of runs that failed, by outcome: ``failed``, ``out of time`` or ``out of memory``.
    """

    case: Mapping[str, Any]
    method: str
    runs: int
    done: int
    proven: int
    feasible: int
    answered: int
    objective: Mean | None
    ratio: Mean | None
    gap: Mean | None
    time: Mean | None
    simulated_time: Mean | None
    messages: Mean | None
    failures: Mapping[str, int]

    @classmethod
    def of(cls, group: Sequence[Record], references: Mapping[str, float]) -> Self:
        """Return the summary of all runs of one case and one method."""
        done = [record for record in group if record["outcome"] == "done"]

        def mean(name: str) -> Mean | None:
            return Mean.of([record.get(name) for record in done])

        return cls(
            case=group[0]["case"],
            method=group[0]["method"],
            runs=len(group),
            done=len(done),
            proven=sum(record["status"] in ("optimal", "infeasible") for record in done),
            feasible=sum(record["objective"] is not None for record in done),
            answered=sum(has_answer(record) for record in group),
            objective=mean("objective"),
            ratio=Mean.of([ratio_of(record, references, record["objective"]) for record in done]),
            gap=mean("gap"),
            time=mean("time"),
            simulated_time=mean("simulated_time"),
            messages=mean("msg_count"),
            failures=Counter(record["outcome"] for record in group if record["outcome"] != "done"),
        )


@dataclass(frozen=True)
class Findings:
    """An experiment with its results.

    Attributes
    ----------
    experiment, machine : dict
        The experiment file, and versions and hardware of the machine, as written into the folder.
    records : list of dict
        The results of the runs, in the order of the plan.
    cells : list of Cell
        Summaries by case and method.
    planned : int
        Number of planned runs.
    """

    experiment: Mapping[str, Any]
    machine: Mapping[str, Any]
    records: Sequence[Record]
    cells: Sequence[Cell]
    planned: int

    @property
    def cases(self) -> list[Mapping[str, Any]]:
        """All cases, in the order of the plan."""
        return list({json.dumps(cell.case, sort_keys=True): cell.case for cell in self.cells}.values())

    @property
    def methods(self) -> list[str]:
        """All methods, in the order of the plan."""
        return list(dict.fromkeys(cell.method for cell in self.cells))

    @property
    def unanswered(self) -> list[tuple[Cell, str]]:
        """The cases and methods without a single answer, each with the reasons and how often each one occurred."""
        without = [cell for cell in self.cells if not cell.answered]
        return [(cell, _reasons(self.records, cell)) for cell in without]


def findings_of(folder: Path) -> Findings:
    """Read the folder of an experiment.

    Raises
    ------
    FileError
        If the folder is not that of an experiment, or has no results.
    """
    try:
        plan = read_plan(folder / PLAN)
    except FileNotFoundError:
        raise FileError(f"{folder}: is not the folder of an experiment: {PLAN} is missing") from None
    order = {key: i for i, key in enumerate(plan.runs)}
    experiment = plan.experiment
    records = [record for record in read_records(folder / RESULTS) if record["key"] in order]
    if not records:
        raise FileError(f"{folder}: has no results yet")
    records = sorted({r["key"]: r for r in records}.values(), key=lambda r: order[r["key"]])
    references = reference_of(records, (experiment.get("report") or {}).get("compare", BOUND))
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(json.dumps([record["case"], record["method"]], sort_keys=True), []).append(record)
    cells = [Cell.of(group, references) for group in groups.values()]
    return Findings(experiment, plan.machine, records, cells, len(order))


def instance_of(record: Record) -> str:
    """Return a key of the problem instance of a run: the ``problem`` keys of its case, and its seed."""
    keys = {key: value for key, value in record["case"].items() if key.split(".")[0] == "problem"}
    return json.dumps([keys, record["seed"]], sort_keys=True)


def reference_of(records: Sequence[Record], compare: str) -> dict[str, float]:
    """Return the reference of each instance: the objective of the method ``compare``, or the best bound of all methods.

    If no method has a bound, the reference is the best objective. An instance without either is left out.

    Parameters
    ----------
    records
        The results of all runs.
    compare
        Name of a method, or ``BOUND``.
    """
    references: dict[str, float] = {}
    for instance in dict.fromkeys(map(instance_of, records)):
        finished = [r for r in records if r["outcome"] == "done" and instance_of(r) == instance]
        if compare == BOUND:
            best = max if finished and finished[0]["sense"] == "max" else min
            tightest = min if best is max else max
            bounds = [r["bound"] for r in finished if r["bound"] is not None]
            objectives = [r["objective"] for r in finished if r["objective"] is not None]
            if bounds or objectives:
                references[instance] = tightest(bounds) if bounds else best(objectives)
        else:
            objectives = [r["objective"] for r in finished if r["method"] == compare and r["objective"] is not None]
            if objectives:
                references[instance] = objectives[0]
    return references


def ratio_of(record: Record, references: Mapping[str, float], objective: float | None) -> float | None:
    """Return an objective divided by the reference of its instance.

    The result is None if either is missing, the reference is 0, or the quotient is too large for a float.
    """
    reference = references.get(instance_of(record))
    if objective is None or not reference:
        return None
    ratio = float(objective) / float(reference)
    return ratio if isfinite(ratio) else None


def _reasons(records: Sequence[Record], cell: Cell) -> str:
    """Return why the runs of one case and one method have no answer: each reason with the number of runs."""
    of_cell = [record for record in records if record["case"] == cell.case and record["method"] == cell.method]
    counts = Counter(map(reason_without_answer, of_cell))
    return "; ".join(f"{reason} ({number} of {len(of_cell)} runs)" for reason, number in counts.items())
