"""Show the result of ``dmcmc run`` and ``dmcmc solve`` as text, for each kind of result."""

import math
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TypeVar

from rich.console import RenderableType

from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.types import Number
from dmcmc.report.scenario import events_table
from dmcmc.report.summary import overview
from dmcmc.report.summary import summary as summary_of_result
from dmcmc.results.conflict import ConstraintConflict
from dmcmc.results.explanation import Explanation
from dmcmc.results.marginals import Marginals, ValueInterval
from dmcmc.results.result import Output, Result
from dmcmc.results.scenario import ScenarioResult
from dmcmc.results.sums import Sums

V = TypeVar("V")

_MAX_VARIABLES = 20  # variables whose marginals are shown
_MAX_LABELS = 4  # values per variable
_MAX_DIGITS = 60  # digits of a count; larger ones are written with an exponent


def summary(output: Output, problem: Problem | None = None, written: str | None = None) -> RenderableType:
    """Return the summary of any kind of result.

    Parameters
    ----------
    output
        The result.
    problem
        The solved problem; if it is given, the first values of the assignment are shown.
    written
        The file that the result was written to.
    """
    if isinstance(output, Sums):
        return overview([*_sums(output), *_file(written)])
    if isinstance(output, ConstraintConflict):
        return overview([*_conflict(output), *_file(written)])
    if isinstance(output, Marginals):
        return overview([*_marginals(output), *_file(written)])
    if isinstance(output, ScenarioResult):
        return events_table(output.events, written)
    assert isinstance(output, Result)
    details = []
    if isinstance(output, Explanation) and output.objective is not None:
        details.append(("product", f"{_power(output.objective)} (of the file's numbers; the objective is its ln)"))
    return summary_of_result(output, details, problem, written)


def _file(written: str | None) -> list[tuple[str, str]]:
    """Return the line that names the file of the result."""
    return [] if written is None else [("written to", written)]


def _sums(sums: Sums) -> list[tuple[str, str]]:
    """Return the lines of a partition function or a count."""
    name = {"pr": "Z", "count": "solutions"}[sums.task]
    meaning = {
        "exact": "exact",
        "bound": f"upper bound (mini-buckets, z = {sums.z})",
        "infeasible": "infeasible (proven: no assignment satisfies the hard constraints)",
    }
    rows = [("status", meaning[sums.status])]
    if sums.ln is None:
        rows.append((name, "0"))
    elif isinstance(sums.value, int) and sums.ln < _MAX_DIGITS * math.log(10):
        rows.append((name, str(sums.value)))
    else:
        rows.append((name, _power(sums.ln)))
    if sums.ln is not None:
        rows += [(f"ln {name}", f"{sums.ln:.10g}"), (f"log10 {name}", f"{sums.log10:.10g}")]
    rows += [("time", f"{sums.time:.3f} s"), ("elimination", f"width {sums.width}, {sums.cells:,} table cells")]
    return rows


def _conflict(conflict: ConstraintConflict) -> list[tuple[str, str]]:
    """Return the lines of a conflict: its constraints, and the objective if one of them is relaxed."""
    meaning = {
        "infeasible": "infeasible (proven: no assignment satisfies the hard constraints)",
        "feasible": "feasible: the hard constraints can hold together",
        "unknown": "unknown: neither an assignment nor a proof was found in time",
    }
    rows = [("status", meaning[conflict.status]), ("time", f"{conflict.time:.3f} s")]
    if conflict.status == "infeasible":
        minimal = "no smaller set of them" if conflict.minimal else "perhaps fewer of them, too"
        rows.append(("conflict", f"{len(conflict.constraints)} constraints cannot hold together ({minimal})"))
    for relaxation in conflict.relaxations:
        repaired = f"objective {relaxation.objective} without it" if relaxation.objective is not None else None
        rows.append(("", f"{relaxation.constraint}: {repaired or f'without it: {relaxation.status}'}"))
    return rows


def _marginals(result: Marginals) -> list[tuple[str, str]]:
    """Return the lines of marginals: the first variables, each with its best values."""
    meaning = {
        "exact": "exact",
        "bounded": "bounds for each value, within the time limit",
        "infeasible": "infeasible (proven: no assignment satisfies the hard constraints)",
    }
    rows = [("status", meaning[result.status])]
    if result.ln is not None:
        rows.append(("ln Z", f"{result.ln:.10g}"))
    if result.objective is not None:
        rows.append(("objective", f"{result.objective:.12g}"))
    if result.status == "bounded":
        return [*rows, ("time", f"{result.time:.3f} s"), *_shown(result.intervals, _interval_texts)]
    rows.append(("time", f"{result.time:.3f} s ({result.planning:.3f} s of it for building the junction tree)"))
    size = f"{result.cells:,} {'entries of sparse tables' if result.tables == 'sparse' else 'table cells'}"
    rows.append(("junction tree", f"{result.cliques} cliques, width {result.width}, {size}"))
    return [*rows, *_shown(result.marginals, lambda values: _values(values, result.task))]


def _shown(by_variable: Mapping[str, V], text: Callable[[V], str]) -> list[tuple[str, str]]:
    """Return the lines of the first variables."""
    rows = [(name, text(values)) for name, values in islice(by_variable.items(), _MAX_VARIABLES)]
    more = len(by_variable) - _MAX_VARIABLES
    return [*rows, ("...", f"and {more} more (all of them with --json)")] if more > 0 else rows


def _interval_texts(values: Mapping[Label, ValueInterval]) -> str:
    """Return the bounds of the values of a variable: the proven possible ones first."""
    possible = {label: x for label, x in values.items() if x.objective is not None or not x.proven}
    listed = sorted(possible.items(), key=lambda pair: (not pair[1].proven, pair[1].objective is None))
    shown = ", ".join(f"{label}: {_interval_text(x)}" for label, x in listed[:_MAX_LABELS])
    more, impossible = len(listed) - _MAX_LABELS, len(values) - len(listed)
    rest = [f"{more} more"] * (more > 0) + [f"{impossible} impossible"] * (impossible > 0)
    return ", ".join([shown, *rest] if shown else rest)


def _interval_text(interval: ValueInterval) -> str:
    """Return the bounds of one value: a number if it is proven, otherwise the best found and the bound."""
    if interval.proven:
        return f"{interval.objective:.10g}"
    lower, upper = ("?" if x is None else f"{x:.10g}" for x in (interval.objective, interval.bound))
    return f"{lower} to {upper}"


def _values(values: Mapping[Label, Number | None], task: str) -> str:
    """Return the values of a variable: by descending probability, or for max-marginals in the order of the domain."""
    listed = [(label, value) for label, value in values.items() if value is not None]
    if task == "mar":
        listed.sort(key=lambda pair: -pair[1])
    digits = 6 if task == "mar" else 10
    first = ", ".join(f"{label}: {value:.{digits}g}" for label, value in listed[:_MAX_LABELS])
    more = len(values) - min(len(listed), _MAX_LABELS)
    return f"{first}, ... {more} more" if more and len(listed) > _MAX_LABELS else first


def _power(ln: float) -> str:
    """Return e^ln as text with ten digits; also for numbers beyond the range of floats.

    >>> _power(0.0), _power(2302.585092994046)
    ('1', '1.0000000000e+1000')
    """
    if abs(ln) < 700:  # e^±700 are float64 numbers
        return f"{math.exp(ln):.10g}"
    exponent = math.floor(ln / math.log(10))
    return f"{math.exp(ln - exponent * math.log(10)):.10f}e{exponent:+d}"
