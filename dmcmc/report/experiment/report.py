"""The report of an experiment's folder: a page, tables in three formats and, by matplotlib, figures for papers."""

from html import escape
from pathlib import Path

from dmcmc.files.write import replace_file
from dmcmc.report.experiment import tables
from dmcmc.report.experiment.charts import charts_of
from dmcmc.report.experiment.statistics import Findings, findings_of
from dmcmc.report.pages.chart import svg
from dmcmc.report.pages.page_template import page, table

PAGE = "report.html"


def write_report(folder: Path, figures: str | None = None) -> list[Path]:
    """Write the report of an experiment into its folder; return the files, the page first.

    Parameters
    ----------
    figures
        ``pdf``, ``png`` or ``svg``: draw all charts with matplotlib, too.

    Raises
    ------
    FileError
        If the folder has no results, or a file cannot be written.
    Unavailable
        For figures without matplotlib.
    """
    findings = findings_of(folder)
    head, rows, groups = tables.summary(findings)
    written = {
        PAGE: page_of(findings),
        "table.md": tables.markdown(head, rows),
        "table.tex": tables.latex(head, rows, groups),
        "runs.csv": tables.values(findings),
    }
    paper = tables.beside_paper(findings)
    if paper[1]:
        written |= {"paper.md": tables.markdown(*paper), "paper.tex": tables.latex(*paper)}
    for name, content in written.items():
        replace_file(folder / name, [content])
    files = [folder / name for name in written]
    if figures is not None:
        from dmcmc.report.experiment.figures import draw_figures

        files += draw_figures(charts_of(findings), folder, figures)
    return files


def page_of(findings: Findings) -> str:
    """Return the page: what it is about, the numbers, what was published beside them, the charts, and the machine."""
    told = findings.experiment
    note = (told.get("report") or {}).get("note", "")
    head, rows, groups = tables.summary(findings)
    parts = [f"<p>{escape(str(told.get('text') or ''))}</p>"]
    done = f"{len(findings.records)} of {findings.planned} runs"
    parts.append(f'<p class="soft">{done}. Means with 95 % confidence intervals over seeds. {escape(note)}</p>')
    charts = charts_of(findings)
    if charts:
        drawn = "\n".join(svg(chart) for chart in charts)
        parts.append(f'<h2>Pictures</h2><div class="charts">{drawn}</div>')
    parts += ["<h2>Numbers</h2>", table(head, rows, groups)]
    paper_head, paper_rows = tables.beside_paper(findings)
    if paper_rows:
        parts += ["<h2>What was published, and ours</h2>", table(paper_head, paper_rows)]
    parts += _troubles(findings)
    machine = ", ".join(f"{name} {value}" for name, value in findings.machine.items() if name in _TOLD)
    parts.append(f'<h2>Machine</h2><p class="soft">{escape(machine)}</p>')
    return page(str(told["title"]), parts)


_TOLD = ("dmcmc", "python", "numpy", "numba", "platform", "cores", "memory", "gpu")
_MOST_TROUBLES = 30


def _troubles(findings: Findings) -> list[str]:
    """Return the runs that have no answer, and why."""
    rows = [
        [
            tables.case_name(record["case"]),
            str(record["method"]),
            str(record["seed"]),
            record["outcome"],
            record["error"],
        ]
        for record in findings.records
        if record["outcome"] != "done"
    ]
    if not rows:
        return []
    return ["<h2>Without an answer</h2>", table(["case", "method", "seed", "outcome", "why"], rows[:_MOST_TROUBLES])]
