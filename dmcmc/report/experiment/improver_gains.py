"""Show what each improver of a run contributed: coloured segments of the chart, its legend, bars and a table.

An *improver* is a component that improves the answer or the bound after the first answer, such as local search. Its
*gain* is the sum of its improvements of objective and bound, in units of the objective.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dmcmc.report.numbers import shares_of
from dmcmc.report.pages.chart import PLAIN, LegendEntry, VerticalSegment, bars
from dmcmc.report.pages.page_template import table

# The first colours belong to these improvers, so that an improver has the same colour on all pages.
_IMPROVERS = (
    "local search",
    "bound",
    "exact elimination",
    "branch and bound",
    "sampling",
    "semidefinite",
    "toulbar2",
    "function filtering",
    "recombination",
    "cp-sat",
    "max-sat",
)
_SECONDS_NOTE = "Seconds are summed over threads and ranks, so they may add up to more than the run's time."


class ImproverGains:
    """The time and the gains of each improver in a result that was read from JSON.

    Parameters
    ----------
    result
        The data of the result.

    Attributes
    ----------
    colours : dict of str to int
        Colour number of each improver.
    work : sequence of dict
        The field ``work`` of the result, ordered by decreasing gain: ``improver``, ``seconds``, ``objective_gain`` and
        ``bound_gain`` of each. Improvers without any working time are left out.
    shares : list of float
        The share of each entry of ``work`` in the gains of all.
    _in_trace : set of str
        The improvers that points of the trace name.
    """

    def __init__(self, result: Mapping[str, Any]) -> None:
        work = [entry for entry in result.get("work") or () if entry.get("seconds", 0) > 0]
        self.work: Sequence[Mapping[str, Any]] = sorted(work, key=lambda entry: -_gain(entry))
        self.shares = shares_of([_gain(entry) for entry in self.work])
        in_trace = [name for point in result["trace"] for name in _improvers(point)]
        names = list(dict.fromkeys([*_IMPROVERS, *(entry["improver"] for entry in self.work), *in_trace]))
        self.colours = {name: number for number, name in enumerate(names)}
        self._in_trace = set(in_trace)

    def segments(self, trace: Sequence[Mapping[str, Any]], name: str, first: float) -> list[VerticalSegment]:
        """Return the improvements of the objective or the bound as segments in the colours of their improvers.

        An improvement between two points of the trace is a vertical step of the line. It is divided into one segment
        per improver, each as long as the improver's share.

        Parameters
        ----------
        trace
            The trace of the result.
        name
            ``objective`` or ``bound``.
        first
            Start of the time axis in seconds; earlier improvements are drawn there.
        """
        segments, previous = list[VerticalSegment](), None
        for point in trace:
            value = point.get(name)
            if value is not None and previous is not None and value != previous:
                lower_end = previous
                for improver, share in self._shares(point, name).items():
                    upper_end = lower_end + share * (value - previous)
                    colour = self.colours.get(improver, PLAIN)
                    segments.append(
                        VerticalSegment(
                            max(point["time"], first), min(lower_end, upper_end), max(lower_end, upper_end), colour
                        )
                    )
                    lower_end = upper_end
            previous = previous if value is None else value
        return segments

    def legend(self) -> list[LegendEntry]:
        """Return the legend: the seconds of each improver, and its share of all gains."""
        entries = [
            LegendEntry(
                f"{entry['improver']}: {entry['seconds']:.3g} s, {100 * share:.3g} %", self.colours[entry["improver"]]
            )
            for entry, share in zip(self.work, self.shares, strict=True)
        ]
        listed = {entry["improver"] for entry in self.work}
        return entries + [
            LegendEntry(name, self.colours[name]) for name in self.colours if name in self._in_trace - listed
        ]

    def html(self) -> list[str]:
        """Return a bar chart of seconds, one of shares, and a table; nothing if the result has no ``work``."""
        if not self.work:
            return []
        improvers = [str(entry["improver"]) for entry in self.work]
        seconds = [float(entry["seconds"]) for entry in self.work]
        rows = [
            [
                improver,
                f"{improver_seconds:.3f}",
                f"{entry['objective_gain']:,.6g}",
                f"{entry['bound_gain']:,.6g}",
                f"{100 * share:.3g} %",
                f"{_gain(entry) / improver_seconds:,.4g}",
            ]
            for improver, improver_seconds, entry, share in zip(improvers, seconds, self.work, self.shares, strict=True)
        ]
        head = ["improver", "seconds", "objective gain", "bound gain", "share of all gains", "gain per second"]
        return [
            bars(
                "Seconds per improver",
                [
                    (improver, round(improver_seconds, 2))
                    for improver, improver_seconds in zip(improvers, seconds, strict=True)
                ],
                "s",
                self.colours,
            ),
            bars(
                "Share of all gains per improver",
                [(improver, round(100 * share, 2)) for improver, share in zip(improvers, self.shares, strict=True)],
                "%",
                self.colours,
            ),
            f'{table(head, rows)}<p class="soft">{_SECONDS_NOTE}</p>',
        ]

    def _shares(self, point: Mapping[str, Any], name: str) -> dict[str, float]:
        """Return the shares of the improvers in one improvement; the empty name stands for an unknown improver.

        The shares of a bound are in the trace. For an objective, only a single improver is known to have the share 1.
        """
        known = point.get("bound_shares") or {}
        if name == "bound" and known:
            return dict(known)
        names = _improvers(point)
        return {names[0]: 1.0} if len(names) == 1 else {"": 1.0}


def _gain(work: Mapping[str, Any]) -> float:
    """Return by how much an improver improved objective and bound together."""
    return float(work.get("objective_gain") or 0) + float(work.get("bound_gain") or 0)


def _improvers(point: Mapping[str, Any]) -> list[str]:
    """Return the improvers that a point of the trace names; ``prune``, which only drops table rows, is not one."""
    return [name for name in str(point.get("found_by") or "").split(", ") if name not in ("", "prune")]
