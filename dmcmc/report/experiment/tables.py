"""Make the tables of an experiment, and write them as Markdown, LaTeX and CSV.

A row is a list of texts. An exclamation mark at the beginning of a cell marks runs that failed; the web page highlights
such a cell, and the other formats drop the mark.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dmcmc.report.experiment.names import case_title, quantities_of
from dmcmc.report.experiment.statistics import Cell, Findings, Mean, plain

Rows = list[list[str]]


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
    head += ["messages"]
    head += ["runs proven", "runs with answer", "runs"]
    rows, groups, last = Rows(), set[int](), None
    for cell in findings.cells:
        name = case_title(cell.case, findings)
        if name != last:
            groups.add(len(rows))
        rows.append([name if name != last else "", cell.method, *_numbers(cell)])
        last = name
    return head, rows, frozenset(groups)


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
    lines = [f"\\begin{{tabular}}{{ll{'r' * (len(head) - 2)}}}", "\\toprule"]
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
