"""An experiment's numbers as rows, and these as Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from dmcmc.report.experiment.statistics import BOUND, Cell, Findings, Mean, plain

Rows = list[list[str]]


def case_name(case: Mapping[str, Any]) -> str:
    """Return a case in words.

    >>> case_name({"problem.agents": 5, "local.runs": 2}), case_name({})
    ('agents 5, runs 2', 'default')
    """
    named = (f"{key.rpartition('.')[2]} {_short(value)}" for key, value in case.items())
    return ", ".join(named) or "default"


def _short(value: Any) -> str:
    return str(value).rpartition("/")[2] if isinstance(value, str) else str(value)


def summary(findings: Findings) -> tuple[list[str], Rows, frozenset[int]]:
    """Return the head and the rows of the main table, and which rows begin a case."""
    compare = (findings.experiment.get("report") or {}).get("compare", BOUND)
    against = "best bound" if compare == BOUND else compare
    head = ["case", "method", "objective", f"ratio to {against}", "gap", "time, s", "simulated, s", "messages"]
    head += ["proven", "answers", "of"]
    rows, groups, last = Rows(), set[int](), None
    for cell in findings.cells:
        name = case_name(cell.case)
        if name != last:
            groups.add(len(rows))
        rows.append([name if name != last else "", cell.method, *_numbers(cell)])
        last = name
    return head, rows, frozenset(groups)


def _numbers(cell: Cell) -> list[str]:
    answers = str(cell.feasible)
    if cell.troubles:
        told = ", ".join(f"{number} {kind}" for kind, number in cell.troubles.items())
        answers = f"!{cell.feasible} ({told})"
    means = (cell.objective, cell.ratio, cell.gap, cell.time, cell.simulated_time, cell.messages)
    return [*(_text(mean) for mean in means), str(cell.proven), answers, str(cell.runs)]


def _text(mean: Mean | None) -> str:
    return "–" if mean is None else mean.text()


def beside_paper(findings: Findings) -> tuple[list[str], Rows]:
    """Return the rows of what was published beside ours, of the cases that were run; empty where nothing was."""
    cells = {(case_name(cell.case), cell.method): cell for cell in findings.cells}
    names = ("time", "simulated_time", "objective", "ratio", "bound")
    known = {name for name, _ in cells}  # of quick runs, some cases only
    published = [row for row in findings.experiment.get("paper") or [] if case_name(row.get("case", {})) in known]
    shown = [name for name in names if any(name in row for row in published)]
    words = {"time": "time, s", "simulated_time": "simulated, s"}
    head = ["case", "method"]
    for name in shown:
        head += [f"{words.get(name, name)}: paper", "ours"]
        head += ["paper / ours"] if "time" in name else []
    rows = Rows()
    for row in published:
        cell = cells.get((case_name(row.get("case", {})), str(row["method"])))
        line = [case_name(row.get("case", {})), str(row["method"])]
        for name in shown:
            theirs = row.get(name)
            ours: Mean | None = None if cell is None or name == "bound" else getattr(cell, name)
            line += [_published(theirs), _text(ours)]
            if "time" in name:
                measured = 0.0 if ours is None else ours.value
                line.append(plain(theirs / measured, 3) if isinstance(theirs, int | float) and measured else "–")
        rows.append(line)
    return head, rows


def _published(value: Any) -> str:
    return "–" if value is None else plain(float(value), 5) if isinstance(value, int | float) else str(value)


def markdown(head: Sequence[str], rows: Rows) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.removeprefix("!").replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def latex(head: Sequence[str], rows: Rows, groups: frozenset[int] = frozenset()) -> str:
    """Return a table in LaTeX (package booktabs)."""
    lines = [f"\\begin{{tabular}}{{ll{'r' * (len(head) - 2)}}}", "\\toprule"]
    lines += [" & ".join(map(_escaped, head)) + " \\\\", "\\midrule"]
    for number, row in enumerate(rows):
        lines += ["\\midrule"] if number and number in groups else []
        lines.append(" & ".join(_escaped(cell.removeprefix("!")) for cell in row) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _escaped(text: str) -> str:
    for plain_text, escaped in (("\\", "\\textbackslash{}"), ("&", "\\&"), ("%", "\\%"), ("_", "\\_"), ("#", "\\#")):
        text = text.replace(plain_text, escaped)
    return text.replace("±", "$\\pm$").replace("–", "--").replace("$DMCMC", "\\$DMCMC")


def values(findings: Findings) -> str:
    """Return every run as CSV, for other tools."""
    keys = list(dict.fromkeys(key for record in findings.records for key in record["case"]))
    names = ["outcome", "status", "objective", "bound", "gap", "violation", "time", "simulated_time", "msg_count"]
    names += ["msg_size", "cycle", "error"]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*keys, "method", "seed", *names])
    for record in findings.records:
        case = [record["case"].get(key, "") for key in keys]
        found = ["" if record.get(name) is None else record[name] for name in names]
        writer.writerow([*case, record["method"], record["seed"], *found])
    return stream.getvalue()
