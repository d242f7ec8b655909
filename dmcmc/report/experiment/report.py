"""Write the report of an experiment: a web page, tables in three formats, and figures by matplotlib (extra: plot)."""

import io
import re
from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path

from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.errors import ConfigError, Unavailable
from dmcmc.report.experiment.charts import (
    case_title,
    charts_of,
    latex,
    markdown,
    narrow,
    over_measure,
    published_and_measured,
    summary,
    values,
)
from dmcmc.report.experiment.statistics import Findings, findings_of
from dmcmc.report.pages import COLOURS, Chart, literal, page, svg, table

PAGE = "report.html"


def write_report(folder: Path, figures: str | None = None, x: str | None = None, y: str | None = None) -> list[Path]:
    """Write the report of an experiment into its folder; return the files, the page first.

    Parameters
    ----------
    folder
        The folder of the experiment.
    x, y
        Measures of the courses of algorithms: their charts come first, if one of them is given (``cycle`` and ``best``
        by default).
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
    measured = over_measure(findings, x or "cycle", y or "best") if x or y else []
    written = contents_of(findings, measured)
    for name, content in written.items():
        replace_file(folder / name, [content])
    files = [folder / name for name in written]
    if figures is not None:
        files += draw_figures([*measured, *charts_of(findings)], folder, figures)
    return files


def contents_of(findings: Findings, measured: Sequence[Chart] = ()) -> dict[str, str]:
    """Return the contents of the page (``measured`` are its first charts) and the tables by file name, page first."""
    head, rows, groups = summary(findings)
    contents = {
        PAGE: page_of(findings, measured),
        "table.md": markdown(head, rows),
        "table.tex": latex(*narrow(head, rows), groups),
        "runs.csv": values(findings),
    }
    paper = published_and_measured(findings)
    if paper[1]:
        contents |= {"paper.md": markdown(*paper), "paper.tex": latex(*paper)}
    return contents


def page_of(findings: Findings, measured: Sequence[Chart] = ()) -> str:
    """Return the web page: description, charts, table of results, published numbers, failed runs and the machine."""
    experiment = findings.experiment
    note = (experiment.get("report") or {}).get("note", "")
    head, rows, groups = summary(findings)
    parts = [f"<p>{escape(str(experiment.get('text') or ''))}</p>"]
    finished = f"{len(findings.records)} of {findings.planned} runs are finished"
    done = f"{finished}. Numbers are means over seeds with 95 % confidence intervals"
    bands = "Bands show these intervals and are cut off a little beyond the means"
    parts.append(f'<p class="soft">{done}. {bands}. {escape(note)}</p>')
    parts += _unanswered(findings)
    charts = [*measured, *charts_of(findings)]
    if charts:
        drawn = "\n".join(svg(chart) for chart in charts)
        parts.append(f'<h2>Charts</h2><div class="charts">{drawn}</div>')
    parts += ["<h2>Results</h2>", table(head, rows, groups)]
    paper_head, paper_rows = published_and_measured(findings)
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


FORMATS = ("pdf", "png", "svg")
_STYLES = ("-", "--", ":")  # the next style when a colour is used again


def draw_figures(charts: Sequence[Chart], folder: Path, suffix: str) -> list[Path]:
    """Draw each chart to one file in ``folder/figures`` and return the files.

    Raises
    ------
    ConfigError
        If the format ``suffix`` is unknown.
    Unavailable
        If matplotlib is not installed.
    """
    check_figures(suffix)
    from matplotlib.figure import Figure

    files = []
    for chart in charts:
        figure = Figure(figsize=(4.6, 3.0), layout="constrained")  # inches
        axes = figure.subplots()
        for series in chart.series:
            x, y, low, high = zip(*series.points, strict=True)
            (line,) = axes.plot(
                x,
                y,
                label=literal(series.name),
                color=f"C{series.colour % COLOURS}",
                linestyle=_STYLES[series.colour // COLOURS % len(_STYLES)],
                marker=None if series.steps else ".",
                drawstyle="steps-post" * series.steps or None,
            )
            axes.fill_between(x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        for entry in chart.legend:
            axes.plot([], [], label=literal(entry.name), color=f"C{entry.colour % COLOURS}")
        axes.set(title=literal(chart.title), xlabel=literal(chart.x), ylabel=literal(chart.y))
        axes.set_xscale("log" if chart.log_x else "linear")
        axes.set_yscale("log" if chart.log_y else "linear")
        axes.legend(fontsize="small", frameon=False)
        axes.grid(alpha=0.3)
        drawn = io.BytesIO()
        figure.savefig(drawn, format=suffix, dpi=150)
        # A file name of at most 80 characters from the title.
        name = re.sub(r"\W+", "-", chart.title.lower()).strip("-")[:80]
        files.append(folder / "figures" / f"{name}.{suffix}")
        replace_file(files[-1], [drawn.getvalue()])
    return files


def check_figures(suffix: str) -> None:
    """Raise an error if the format is unknown or matplotlib is not installed."""
    if suffix not in FORMATS:
        raise ConfigError(f"--figures: expected one of {', '.join(FORMATS)}, got {suffix!r}")
    if find_spec("matplotlib") is None:
        raise Unavailable("--figures: needs matplotlib; pip install 'dmcmc[plot]' (the web page needs none)")
