"""Show a solved calendar as a self-contained web page, for light and dark screens and print."""

from collections.abc import Iterator, Sequence
from datetime import date
from html import escape

from dmcmc.calendars.file.plan import Calendar
from dmcmc.calendars.pages.answer import CalendarAnswer, ScheduledMeeting
from dmcmc.calendars.pages.reasons import effect_of, heading_of_rules, moved_meetings, reason_without_answer
from dmcmc.report.summary import listed, proof_text, status_text
from dmcmc.results.calendar_result import CalendarConflict, CalendarResult
from dmcmc.results.result import Alternative, Result

_SLOT_HEIGHT = 1.35  # rem per time slot
_LANE_WIDTH = 5.5  # rem of one of several parallel meetings, enough for a short name; wider weeks scroll
_HUES = 12  # colours of meetings

_STYLE = """
:root { color-scheme: light dark;
  --ink: #1d2433; --soft: #667; --line: #d9dde6; --paper: #fff; --s: 70%; --l: 91%; --e: 45%; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9f0; --soft: #99a; --line: #3a4152; --paper: #171b24; --s: 40%; --l: 27%; --e: 65%; } }
* { box-sizing: border-box; }
body { margin: 2rem auto; max-width: 76rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.4 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; } p { color: var(--soft); }
.weeks { overflow-x: auto; }
.week { display: grid; grid-template-columns: var(--wide); gap: 0 .4rem; margin-bottom: 1.5rem; break-inside: avoid; }
.week h3 { font-size: .9rem; margin: 0 0 .3rem; text-align: center; }
.hours { position: sticky; left: 0; z-index: 1; background: var(--paper); } .day { position: relative; }
.hours span { position: absolute; right: .3rem; font-size: .7rem; color: var(--soft); transform: translateY(-50%); }
.day { border: 1px solid var(--line); border-radius: .3rem;
  background: repeating-linear-gradient(var(--line) 0 1px, transparent 1px var(--hour)); }
.event { position: absolute; overflow: hidden; padding: .1rem .3rem; border-radius: .25rem; font-size: .72rem;
  line-height: 1.2; background: hsl(var(--h) var(--s) var(--l)); border-left: 3px solid hsl(var(--h) 60% var(--e)); }
.short { white-space: nowrap; text-overflow: ellipsis; }
.list { columns: 19rem; } .list div { break-inside: avoid; }
@media (max-width: 46rem) { .week { min-width: 46rem; } }
table { border-collapse: collapse; width: 100%; } td, th { padding: .25rem .6rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); } td:first-child { white-space: nowrap; }
@media print { :root { --ink: #000; --soft: #444; --line: #ccc; --paper: #fff; --l: 93%; --e: 40%; }
  body { margin: 0; max-width: none; font-size: 11px; }
  .week { grid-template-columns: var(--narrow); } .list { columns: 15rem; } .event { print-color-adjust: exact; } }
"""


def page_of(answer: CalendarAnswer, result: Result) -> str:
    """Return the page: the weeks as grids, what moves, what is not held and why, and a list per person."""
    title = escape(answer.calendar.name)
    parts = [
        *_head(title),
        f"<h1>{title}</h1><p>{escape(quality_of(answer, result))}</p>",
        "<div class=weeks>",
        *(_week(answer, days) for days in _weeks(answer.calendar.grid.days)),
        "</div>",
        *(_section(title.capitalize(), rows) for title, rows in answer.sections().items()),
        _alternatives(answer.calendar, result.alternatives),
        "<h2>By person</h2><table>",
    ]
    for person in answer.calendar.people:
        attended = [item for item in answer.scheduled if person.name in item.people]
        listed = "".join(f"<div>{_when(item)} {escape(_what(item))}</div>" for item in attended) or "–"
        parts.append(f"<tr><td>{escape(person.name)}<td><div class=list>{listed}</div>")
    return "\n".join([*(part for part in parts if part), "</table></html>", ""])


def quality_of(answer: CalendarAnswer, result: Result) -> str:
    """Return in words how many meetings take place, how good the calendar is, and what is proven."""
    held = f"{len(answer.scheduled)} of {len(answer.calendar.meetings)} meetings take place"
    if result.status == "optimal":
        proven = "proven: no better calendar exists"
    elif result.bound is not None and result.gap is not None:
        proven = f"the best calendar found; proven: none has more than {result.bound} ({100 * result.gap:.3g} % more)"
    else:
        proven = "the best calendar found so far"
    count = len(answer.moved)
    moved = f" {count} booked meeting{'s move' if count > 1 else ' moves'}." if count else ""
    return f"{held}; total score {result.objective}, {proven}.{moved}"


def _section(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a heading and a table; empty without rows."""
    if not rows:
        return ""
    cells = "".join("<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in rows)
    return f"<h2>{escape(title)}</h2><table>{cells}</table>"


def page_without_answer(calendar: Calendar, result: Result) -> str:
    """Return the page of a calendar without an answer: the status, the reason, and what would help.

    Parameters
    ----------
    calendar
        The calendar.
    result
        The result without a usable assignment.
    """
    status, reason = status_text(result.status, result.note), reason_without_answer(result)
    conflict = result.conflict if isinstance(result, CalendarResult) else None
    return page_of_conflict(calendar, conflict, status, reason)


def page_of_conflict(calendar: Calendar, conflict: CalendarConflict | None, status: str, reason: str) -> str:
    """Return the page of a calendar without an answer.

    Parameters
    ----------
    calendar
        The calendar.
    conflict
        The rules that cannot hold together; None if they are not known.
    status, reason
        The status in words, and why there is no answer.
    """
    title = escape(calendar.name)
    parts = [f"<h1>{title}</h1><p>There is no calendar: {escape(status)}.</p>", f"<h2>Why</h2><p>{escape(reason)}</p>"]
    if conflict is not None and conflict.constraints:
        items = "".join(f"<li>{escape(rule)}" for rule in conflict.constraints)
        parts.append(f"<p>{escape(heading_of_rules(conflict).capitalize())}</p><ul>{items}</ul>")
    if conflict is not None:
        rows = [[f"without: {x.constraint}", effect_of(x)] for x in conflict.relaxations]
        parts.append(_section("What would help, each alone", rows))
    return "\n".join([*_head(title), *parts, "</html>", ""])


def _head(title: str) -> list[str]:
    """Return the beginning of a page; the title is HTML."""
    return [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>",
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>",
    ]


def _weeks(days: Sequence[date]) -> list[list[int]]:
    """Return the day numbers of each week."""
    days_of_week: dict[int, list[int]] = {}
    for i, day in enumerate(days):
        days_of_week.setdefault((day.toordinal() - 1) // 7, []).append(i)
    return list(days_of_week.values())


def _week(answer: CalendarAnswer, days: Sequence[int]) -> str:
    """Return one week as a grid of hours and days."""
    grid = answer.calendar.grid
    height = f"{grid.slots * _SLOT_HEIGHT:.2f}rem"
    hour = f"{60 / grid.minutes * _SLOT_HEIGHT:.3f}rem"
    marks = []
    for minute in range(-(-grid.opens // 60) * 60, grid.closes + 1, 60):
        top = (minute - grid.opens) / grid.minutes * _SLOT_HEIGHT
        marks.append(f"<span style='top:{top:.2f}rem'>{minute // 60:02d}:00</span>")
    heads = "<i></i>" + "".join(f"<h3>{grid.days[d]:%a} {grid.days[d].day} {grid.days[d]:%b}</h3>" for d in days)
    of_day = [[item for item in answer.scheduled if item.choice.start // grid.slots == d] for d in days]
    columns = "".join(f"<div class=day style='height:{height}'>{_events(answer, items)}</div>" for items in of_day)
    lanes = (max((lanes for _, _, lanes in _in_lanes(items)), default=1) for items in of_day)
    wide = " ".join(f"minmax({_LANE_WIDTH * count:g}rem,1fr)" for count in lanes)
    style = f"--wide:3rem {wide};--narrow:3rem repeat({len(days)},1fr);--hour:{hour}"
    return f"<div class=week style='{style}'>{heads}<div class=hours>{''.join(marks)}</div>{columns}</div>"


def _events(answer: CalendarAnswer, items: Sequence[ScheduledMeeting]) -> str:
    """Return the meetings of a day, ordered by time; overlapping ones are side by side."""
    grid = answer.calendar.grid
    hues = {meeting.name: i * 360 // _HUES % 360 for i, meeting in enumerate(answer.calendar.meetings)}
    pieces = []
    for item, lane, lanes in _in_lanes(items):
        # 0.1 rem less than the slots, so that a gap separates consecutive meetings.
        top, height = item.choice.start % grid.slots * _SLOT_HEIGHT, item.meeting.length * _SLOT_HEIGHT - 0.1
        place = (
            f"top:{top:.2f}rem;height:{height:.2f}rem;"
            f"left:{100 * lane / lanes:.2f}%;width:calc({100 / lanes:.2f}% - 2px);--h:{hues[item.meeting.name]}"
        )
        words = escape(f"{_when(item)} {_what(item)}: {', '.join(item.people)}", quote=True)
        between, short = ("<br>", "") if item.meeting.length > 1 else (" ", " short")
        pieces.append(
            f'<div class="event{short}" style="{place}" title="{words}"><b>{escape(item.meeting.name)}</b>{between}'
            f"{escape(f'{item.room}: ' if item.room else '')}{escape(', '.join(item.people))}</div>"
        )
    return "".join(pieces)


def _in_lanes(meetings: Sequence[ScheduledMeeting]) -> Iterator[tuple[ScheduledMeeting, int, int]]:
    """Yield the meetings by time, each with its lane and the number of lanes of its group of overlapping meetings."""
    group: list[tuple[ScheduledMeeting, int]] = []
    free: list[int] = []  # the slot at which each lane becomes free
    for item in meetings:
        if group and item.choice.start >= max(free):
            yield from ((earlier, lane, len(free)) for earlier, lane in group)
            group, free = [], []
        lane = next((i for i, end in enumerate(free) if end <= item.choice.start), len(free))
        free[lane : lane + 1] = [item.choice.start + item.meeting.length]
        group.append((item, lane))
    yield from ((earlier, lane, len(free)) for earlier, lane in group)


def _when(item: ScheduledMeeting) -> str:
    """Return the day and the times of a meeting."""
    return f"{item.begin:%a} {item.begin.day} {item.begin:%b} {item.times}"


def _what(item: ScheduledMeeting) -> str:
    """Return the name of a meeting, with its room."""
    return f"{item.meeting.name} ({item.room})" if item.room else item.meeting.name


def _alternatives(calendar: Calendar, alternatives: Sequence[Alternative]) -> str:
    """Return the alternatives as a section of the web page; empty if there is only one."""
    if len(alternatives) < 2:
        return ""
    rows = [
        f"<tr><td>{i}<td>{x.objective}<td>{escape(proof_text(x))}<td>{escape(listed(words))}"
        for i, (x, words) in enumerate(zip(alternatives, moved_meetings(calendar, alternatives), strict=True), 1)
    ]
    heads = "".join(f"<th>{head}" for head in ("", "score", "proven", "what differs from this calendar"))
    return f"<h2>Alternatives</h2><table><tr>{heads}{''.join(rows)}</table>"
