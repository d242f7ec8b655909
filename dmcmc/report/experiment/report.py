"""Write the report of an experiment: a web page, tables in three formats and, with matplotlib, figures."""

from html import escape
from pathlib import Path

from dmcmc.files.write import replace_file
from dmcmc.report.experiment import tables
from dmcmc.report.experiment.charts import charts_of
from dmcmc.report.experiment.names import case_title
from dmcmc.report.experiment.statistics import Findings, findings_of
from dmcmc.report.pages.chart import svg
from dmcmc.report.pages.page_template import page, table

PAGE = "report.html"


def write_report(folder: Path, figures: str | None = None) -> list[Path]:
    """Write the report of an experiment into its folder; return the files, the page first.

    Parameters
    ----------
    figures
        ``pdf``, ``png`` or ``svg``: draw all charts with matplotlib, too; None: no figures.

    Raises
    ------
    FileError
        If the folder has no results, or a file cannot be written.
    Unavailable
        If figures are asked for and matplotlib is not installed.
    """
    findings = findings_of(folder)
    written = contents_of(findings)
    for name, content in written.items():
        replace_file(folder / name, [content])
    files = [folder / name for name in written]
    if figures is not None:
        from dmcmc.report.experiment.figures import draw_figures

        files += draw_figures(charts_of(findings), folder, figures)
    return files


def contents_of(findings: Findings) -> dict[str, str]:
    """Return the contents of the page and the tables by file name, the page first."""
    head, rows, groups = tables.summary(findings)
    contents = {
        PAGE: page_of(findings),
        "table.md": tables.markdown(head, rows),
        "table.tex": tables.latex(head, rows, groups),
        "runs.csv": tables.values(findings),
    }
    paper = tables.published_and_measured(findings)
    if paper[1]:
        contents |= {"paper.md": tables.markdown(*paper), "paper.tex": tables.latex(*paper)}
    return contents


def page_of(findings: Findings) -> str:
    """Return the web page: description, charts, table of results, published numbers, failed runs and the machine."""
    experiment = findings.experiment
    note = (experiment.get("report") or {}).get("note", "")
    head, rows, groups = tables.summary(findings)
    parts = [f"<p>{escape(str(experiment.get('text') or ''))}</p>"]
    finished = f"{len(findings.records)} of {findings.planned} runs are finished"
    done = f"{finished}. Numbers are means over seeds with 95 % confidence intervals"
    bands = "Bands show these intervals and are cut off a little beyond the means"
    parts.append(f'<p class="soft">{done}. {bands}. {escape(note)}</p>')
    parts += _unanswered(findings)
    charts = charts_of(findings)
    if charts:
        drawn = "\n".join(svg(chart) for chart in charts)
        parts.append(f'<h2>Charts</h2><div class="charts">{drawn}</div>')
    parts += ["<h2>Results</h2>", table(head, rows, groups)]
    paper_head, paper_rows = tables.published_and_measured(findings)
    if paper_rows:
        parts += ["<h2>Comparison with published results</h2>", table(paper_head, paper_rows)]
    parts += _failures(findings)
    machine = ", ".join(f"{name} {value}" for name, value in findings.machine.items() if name in _MACHINE)
    parts.append(f'<h2>Machine</h2><p class="soft">{escape(machine)}</p>')
    return page(str(experiment.get("title", "Experiment")), parts)


_MACHINE = ("dmcmc", "python", "numpy", "numba", "platform", "cores", "memory", "gpu")
_MAX_FAILURES = 30  # failed runs that the page lists


def _unanswered(findings: Findings) -> list[str]:
    """Return a table of the cases and methods without a single answer, with the reasons; empty if there are none."""
    rows = [[case_title(cell.case, findings), cell.method, f"!{reasons}"] for cell, reasons in findings.unanswered]
    if not rows:
        return []
    return ["<h2>Methods without an answer</h2>", table(["case", "method", "reason"], rows)]


def _failures(findings: Findings) -> list[str]:
    """Return a table of the runs that failed, with their errors; empty if there are none."""
    rows = [
        [
            case_title(record["case"], findings),
            str(record["method"]),
            str(record["seed"]),
            record["outcome"],
            record.get("error", ""),
        ]
        for record in findings.records
        if record["outcome"] != "done"
    ]
    if not rows:
        return []
    return ["<h2>Failed runs</h2>", table(["case", "method", "seed", "outcome", "error"], rows[:_MAX_FAILURES])]
