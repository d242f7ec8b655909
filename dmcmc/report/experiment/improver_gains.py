"""What kinds of work have earned in a run: the pieces of the picture that are theirs, a legend, bars, a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from dmcmc.report.numbers import parts_of
from dmcmc.report.pages.chart import PLAIN, Key, Step, bars
from dmcmc.report.pages.page_template import table

# So that a kind has the same colour in all pages.
_KINDS = ("search", "bound", "eliminate", "branch", "sample", "semidefinite", "toulbar2", "filter", "combine")


class Earned:
    """What came of each kind of work in a result that is plain data.

    Attributes
    ----------
    colours : dict of int
        By kind.
    work : sequence of mapping
        As the result has it, what has brought most first.
    parts : list of float
        Of all that was brought, 1 together.
    """

    def __init__(self, result: Mapping[str, Any]) -> None:
        work = [one for one in result.get("work") or () if one.get("seconds", 0) > 0]
        self.work: Sequence[Mapping[str, Any]] = sorted(work, key=lambda one: -_gain(one))
        self.parts = parts_of([_gain(one) for one in self.work])
        told = [name for point in result["trace"] for name in _names(point)]
        names = list(dict.fromkeys([*_KINDS, *(one["kind"] for one in self.work), *told]))
        self.colours = {name: number for number, name in enumerate(names)}
        self._told = set(told)

    def steps(self, trace: Sequence[Mapping[str, Any]], name: str, first: float) -> list[Step]:
        """Return how the objective or the bound got better, each piece in the colour of what brought it.

        Parameters
        ----------
        name
            ``objective`` or ``bound``.
        first
            Seconds: what came before stands here.
        """
        steps, before = list[Step](), None
        for point in trace:
            value = point.get(name)
            if value is not None and before is not None and value != before:
                at = before
                for kind, part in self._shares(point, name).items():
                    to = at + part * (value - before)
                    steps.append(
                        Step(max(point["time"], first), min(at, to), max(at, to), self.colours.get(kind, PLAIN))
                    )
                    at = to
            before = before if value is None else value
        return steps

    def keys(self) -> list[Key]:
        """Return what the legend says: the seconds of each kind, and its part of what the gap was closed by."""
        keys = [
            Key(f"{one['kind']}: {one['seconds']:.3g} s, {100 * part:.3g} %", self.colours[one["kind"]])
            for one, part in zip(self.work, self.parts, strict=True)
        ]
        listed = {one["kind"] for one in self.work}
        return keys + [Key(name, self.colours[name]) for name in self.colours if name in self._told - listed]

    def html(self) -> list[str]:
        """Return bars of seconds and parts, and a table; nothing where no work is told apart."""
        if not self.work:
            return []
        kinds = [str(one["kind"]) for one in self.work]
        seconds = [float(one["seconds"]) for one in self.work]
        rows = [
            [
                kind,
                f"{took:.3f} s",
                f"{one['objective']:,.6g}",
                f"{one['bound']:,.6g}",
                *_shown(part, _gain(one) / took),
            ]
            for kind, took, one, part in zip(kinds, seconds, self.work, self.parts, strict=True)
        ]
        head = ["work", "time", "objective better by", "bound better by", "of the gap closed", "a second"]
        return [
            bars(
                "Time by kind of work",
                [(kind, round(took, 2)) for kind, took in zip(kinds, seconds, strict=True)],
                "s",
                self.colours,
            ),
            bars(
                "Part of the gap closed by kind of work",
                [(kind, round(100 * part, 2)) for kind, part in zip(kinds, self.parts, strict=True)],
                "%",
                self.colours,
            ),
            table(head, rows),
        ]

    def _shares(self, point: Mapping[str, Any], name: str) -> dict[str, float]:
        """Return the parts that kinds of work have in a point; all of it nobody's where that is not known."""
        known = point.get("parts") or {}
        if name == "bound" and known:
            return dict(known)
        names = _names(point)
        return {names[0]: 1.0} if len(names) == 1 else {"": 1.0}


def _gain(work: Mapping[str, Any]) -> float:
    return float(work.get("objective") or 0) + float(work.get("bound") or 0)


def _names(point: Mapping[str, Any]) -> list[str]:
    """Return the kinds of work that a point of the trace names; what only leaves rows out is none."""
    return [name for name in str(point.get("by") or "").split(", ") if name not in ("", "prune")]


def _shown(part: float, pace: float) -> tuple[str, str]:
    return f"{100 * part:.3g} %", f"{pace:,.4g}"
