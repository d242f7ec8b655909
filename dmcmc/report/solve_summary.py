"""What ``dmcmc solve`` found, as a table for people."""

import math
from collections.abc import Mapping

from rich.console import RenderableType

from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.types import Number
from dmcmc.report.summary import overview
from dmcmc.report.summary import summary as summary_of_result
from dmcmc.results.explanation import Explanation
from dmcmc.results.marginals import Marginals
from dmcmc.results.result import Output, Result
from dmcmc.results.sums import Sums

_MOST_VALUES = 20
_MOST_LABELS = 4
_MOST_DIGITS = 60


def summary(output: Output, problem: Problem | None = None, written: str | None = None) -> RenderableType:
    """Return what matters of an output of ``run`` or ``solve``.

    Parameters
    ----------
    output
        What came out.
    problem
        What was solved; of an assignment the first values are shown then.
    written
        The file that the output has been written to.
    """
    if isinstance(output, Sums):
        return overview([*_measured(output), *_place(written)])
    if isinstance(output, Marginals):
        return overview([*_tables(output), *_place(written)])
    assert isinstance(output, Result)
    details = []
    if isinstance(output, Explanation) and output.objective is not None:
        details.append(("product", f"{_power(output.objective)} (of the file's numbers; the objective is its ln)"))
    return summary_of_result(output, details, problem, written)


def _place(written: str | None) -> list[tuple[str, str]]:
    return [] if written is None else [("written", written)]


def _measured(found: Sums) -> list[tuple[str, str]]:
    name = {"pr": "Z", "count": "solutions"}[found.task]
    meaning = {
        "exact": "exact",
        "bound": f"upper bound (mini-buckets of z = {found.z})",
        "infeasible": "infeasible (proven: no assignment satisfies the hard constraints)",
    }
    rows = [("status", meaning[found.status])]
    if found.ln is None:
        rows.append((name, "0"))
    elif isinstance(found.value, int) and found.ln < _MOST_DIGITS * math.log(10):
        rows.append((name, str(found.value)))
    else:
        rows.append((name, _power(found.ln)))
    if found.ln is not None:
        rows += [(f"ln {name}", f"{found.ln:.10g}"), (f"log10 {name}", f"{found.log10:.10g}")]
    rows += [("time", f"{found.time:.3f} s"), ("elimination", f"width {found.width}, {found.cells:,} cells")]
    return rows


def _tables(found: Marginals) -> list[tuple[str, str]]:
    """Return the first variables, each with its best values."""
    meaning = {"exact": "exact", "infeasible": "infeasible (proven: no assignment satisfies the hard constraints)"}
    rows = [("status", meaning[found.status])]
    if found.ln is not None:
        rows.append(("ln Z", f"{found.ln:.10g}"))
    if found.objective is not None:
        rows.append(("objective", f"{found.objective:.12g}"))
    rows.append(("time", f"{found.time:.3f} s ({found.planning:.3f} s of it planning)"))
    work = f"{found.cells:,} {'rows, tables incomplete' if found.tables == 'incomplete' else 'cells'}"
    rows.append(("junction tree", f"{found.cliques} cliques, width {found.width}, {work}"))
    rows += [(name, _values(values, found.task)) for name, values in list(found.marginals.items())[:_MOST_VALUES]]
    more = len(found.marginals) - _MOST_VALUES
    return [*rows, ("...", f"and {more} more (all of them with --json)")] if more > 0 else rows


def _values(values: Mapping[Label, Number | None], task: str) -> str:
    """Return a variable's values: the most probable first, or in their order."""
    listed = [(label, value) for label, value in values.items() if value is not None]
    if task == "mar":
        listed.sort(key=lambda pair: -pair[1])
    digits = 6 if task == "mar" else 10
    first = ", ".join(f"{label}: {value:.{digits}g}" for label, value in listed[:_MOST_LABELS])
    more = len(values) - min(len(listed), _MOST_LABELS)
    return f"{first}, ... {more} more" if more and len(listed) > _MOST_LABELS else first


def _power(ln: float) -> str:
    """Return e^ln with ten digits, however large.

    >>> _power(0.0), _power(2302.585092994046)
    ('1', '1.0000000000e+1000')
    """
    if abs(ln) < 700:
        return f"{math.exp(ln):.10g}"
    exponent = math.floor(ln / math.log(10))
    return f"{math.exp(ln - exponent * math.log(10)):.10f}e{exponent:+d}"
