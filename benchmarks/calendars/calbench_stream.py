"""Schedule CalBench's meetings as they arrive with calendar files: each answer is kept for the next one.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.calendars.calbench_stream [--tasks 108] [--output FILE]

``FOLDER/calbench/uniform.jsonl`` holds the tasks (CalBench, arXiv 2605.09823). For each arrival a calendar file is
written with the meetings so far, and solved as ``dmcmc run calendar.yaml --keep earlier.json`` does. Appointments are
busy times with a cost, and moving a booked meeting costs ``move_cost`` per participant. What is paid, and the rule for
ties (points for slots in which few others are free), are those of :mod:`benchmarks.sessions.calbench`.

``--messages`` also solves each arrival with an agent per person (PEAV) and counts bytes and disclosed utilities, once
with all rows of the UTIL messages and once with usable rows only.
"""

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

import dmcmc
from benchmarks.harness import Report, instances, options
from benchmarks.sessions.calbench import UNIT, Arrivals, book, others_free, slot_costs
from dmcmc.calendars.file.booked import with_earlier_answer
from dmcmc.calendars.file.plan import Calendar
from dmcmc.calendars.file.problem import problem_of
from dmcmc.calendars.file.read import read_calendar
from dmcmc.calendars.solve import as_calendar_result, solve_calendar
from dmcmc.files.text import SourceFile
from dmcmc.results.calendar_result import CalendarResult

SECONDS = 60.0  # time limit of an arrival
SLOT = 30  # minutes
OPENS = 8 * 60  # minutes after midnight
KINDS = ("UTIL", "USABLE")  # messages that are counted


def hours(first: int, slots: int = 1) -> str:
    """Return the hours of some slots, such as 08:00-08:30."""
    begin, end = (OPENS + SLOT * slot for slot in (first, first + slots))
    return f"{begin // 60:02d}:{begin % 60:02d}-{end // 60:02d}:{end % 60:02d}"


def calendar_text(meetings: Sequence[Mapping[str, Any]], costs: Sequence[NDArray[np.int64]], ties: bool) -> str:
    """Return the calendar file of some meetings, given what each person's appointments cost now."""
    people = {}
    for person, cost in enumerate(costs):
        busy = [{"when": hours(slot), "cost": UNIT * int(cost[slot])} for slot in np.flatnonzero(cost).tolist()]
        free = others_free(costs, person)
        points = {hours(slot): -2 * int(free[slot]) for slot in range(len(cost)) if ties and free[slot]}
        people[f"person {person}"] = {"busy": busy, "prefer": points}
    content = {
        "calendar": "CalBench",
        "days": ["2027-03-01"],
        "hours": hours(0, len(costs[0])),
        "slot": SLOT,
        "people": people,
        "meetings": {
            f"meeting {meeting['id']}": {
                "people": [f"person {person}" for person in meeting["participants"]],
                "move_cost": {"per_participant": UNIT * meeting["cost"] + ties},
            }
            for meeting in meetings
        },
    }
    return yaml.safe_dump(content, sort_keys=False)


def slots_of(result: CalendarResult) -> dict[int, int]:
    """Return the slot of each meeting, by its number in the task."""
    minutes = {x.name: 60 * int(x.start[11:13]) + int(x.start[14:16]) for x in result.meetings}
    return {int(name.removeprefix("meeting ")): (begin - OPENS) // SLOT for name, begin in minutes.items()}


class Messages:
    """Bytes of messages and disclosed utilities of calendars with an agent per person.

    Attributes
    ----------
    sizes : list of int
        Bytes of UTIL messages and of requests.
    disclosed, own : int
        Utilities that others can reconstruct at most, and all own utilities.
    """

    def __init__(self) -> None:
        self.sizes, self.disclosed, self.own = [0, 0], 0, 0

    def count(self, calendar: Calendar, rows: str, objective: float | None) -> None:
        """Solve a calendar with one of the ways to send rows, and add what its agents have sent."""
        result = dmcmc.solve(problem_of(calendar), presolve="none", device="cpu", combine={"rows": rows})
        assert result.status == "optimal" and result.objective == objective
        for agent in result.agents:
            self.disclosed, self.own = self.disclosed + agent.disclosed, self.own + agent.own_utilities
            sent = [agent.messages[kind].size if kind in agent.messages else 0 for kind in KINDS]
            self.sizes = [total + size for total, size in zip(self.sizes, sent, strict=True)]


def arrive(task: Mapping[str, Any], ties: bool, counted: Mapping[str, Messages]) -> Arrivals:
    """Take the meetings of a task one by one, and keep what is booked unless moving pays."""
    costs, booked = [slot_costs(calendar) for calendar in task["calendars"]], dict[int, int]()
    paid, times, earlier = 0, list[float](), ""
    for number in range(len(task["meetings"])):
        meetings, start = task["meetings"][: number + 1], time.perf_counter()
        calendar = read_calendar(SourceFile("calendar.yaml", calendar_text(meetings, costs, ties).encode()))
        if earlier:
            calendar = with_earlier_answer(calendar, earlier, "earlier.json")
        result = as_calendar_result(solve_calendar(calendar, SECONDS), calendar)
        times.append(1e3 * (time.perf_counter() - start))
        assert result.status == "optimal"
        for rows, messages in counted.items():
            messages.count(calendar, rows, result.objective)
        earlier = result.to_json()
        paid += book(meetings, slots_of(result), booked, costs).cost
    return Arrivals(paid, times)


def main() -> None:
    """Run all tasks, and print the total cost, the time of an arrival, and what is sent."""
    parser = options(__file__, __doc__)
    parser.add_argument("--tasks", type=int, default=108)
    parser.add_argument("--ties", choices=("least-constraining", "none"), default="least-constraining")
    parser.add_argument("--messages", action="store_true")
    given = parser.parse_args()
    report = Report(__file__, given)
    path = instances("calbench") / "uniform.jsonl"
    tasks = [json.loads(line) for line in path.read_text("utf-8").splitlines()][: given.tasks]
    counted = {rows: Messages() for rows in ("all", "usable")} if given.messages else {}
    found = [arrive(task, given.ties != "none", counted) for task in tasks]
    times = [value for one in found for value in one.milliseconds]
    report(
        f"{len(tasks)} tasks, {len(times)} meetings; offline optimum {sum(task['optimal']['cost'] for task in tasks)}"
    )
    report(
        f"cost {sum(one.cost for one in found):g}, milliseconds an arrival: median {statistics.median(times):.1f},"
        f" largest {max(times):.1f}"
    )
    for rows, messages in counted.items():
        report(
            f"rows {rows}: {messages.sizes[0]:,} bytes of UTIL messages, {messages.sizes[1]:,} bytes of requests,"
            f" disclosed {messages.disclosed:,} of {messages.own:,} utilities"
        )
    report.keep()


if __name__ == "__main__":
    main()
