"""Draw the charts of an experiment as figures for papers, with matplotlib (extra: plot)."""

import io
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.errors import ConfigError, Unavailable
from dmcmc.report.numbers import literal
from dmcmc.report.pages.chart import Chart
from dmcmc.report.pages.page_template import COLOURS

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
