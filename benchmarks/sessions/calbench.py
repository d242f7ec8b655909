"""Schedule CalBench's meetings as they arrive: booked meetings may move at a cost, appointments give way at a cost.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.sessions.calbench [--tasks 108] [--output FILE]

``FOLDER/calbench/uniform.jsonl`` holds the tasks (CalBench, arXiv 2605.09823). Each person is an agent with a variable
for each of its meetings (PEAV). An appointment that has given way once is paid once, and its slot is free from then on.
A booked meeting that moves costs its weight for each participant. Three ways to take the meetings one by one:

* ``stay``: a session with the cost of moving, solved exactly after each arrival. Of several answers of the same cost
  ``--ties least-constraining`` takes the one whose slots are free for the fewest other people, and then the one in
  which fewer meetings move. This is the least-constraining value of constraint satisfaction (Dechter and Pearl, 1988):
  later meetings need slots that are free for several people. ``--ties none`` takes any answer;
* ``anew``: the same without the cost of moving, which is paid nevertheless;
* ``insert``: booked meetings never move; the new one takes the cheapest slot.

``offline`` is the optimum in the file for all meetings at once, ``greedy`` the cost of the file's greedy rule. Both
sessions end with a proof after each arrival.

The rule for ties was chosen on the 108 tasks. ``--shuffle SEED`` permutes each person's slots, which gives tasks that
it was not chosen on; they have no offline optimum in the file.
"""

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dmcmc
from benchmarks.harness import Report, instances, options

UNIT = 1000  # costs are multiplied by it, so that less than a unit decides between answers of the same cost


class Arrivals(NamedTuple):
    """The result of a task: what was paid, and the milliseconds of each arrival."""

    cost: float
    milliseconds: list[float]


def slot_costs(calendar: Sequence[Mapping[str, Any] | None]) -> NDArray[np.int64]:
    """Return the cost of each slot of a person's calendar: that of its appointment."""
    return np.array([0 if slot is None else int(slot["cost"]) for slot in calendar], dtype=np.int64)


def shuffled(task: Mapping[str, Any], rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a task in which each person's slots are permuted."""
    calendars = [[calendar[slot] for slot in rng.permutation(len(calendar))] for calendar in task["calendars"]]
    return {**task, "calendars": calendars}


def table_of(costs: Sequence[NDArray[np.int64]], person: int, ties: bool) -> NDArray[np.int64]:
    """Return the costs of a person's slots.

    With ``ties``, less than a unit is added for each other person who is free in the slot.
    """
    table: NDArray[np.int64] = UNIT * costs[person] + (2 * others_free(costs, person) if ties else 0)
    return table


def others_free(costs: Sequence[NDArray[np.int64]], person: int) -> NDArray[np.int64]:
    """Return for each slot how many other people are free."""
    free = np.array([cost == 0 for cost in costs])
    others: NDArray[np.int64] = (free.sum(axis=0) - free[person]).astype(np.int64)
    return others


def add_meeting(
    session: dmcmc.Session,
    meeting: Mapping[str, Any],
    costs: Sequence[NDArray[np.int64]],
    before: Sequence[Any],
    ties: bool,
) -> None:
    """Add a meeting: a variable for each participant, equal to each other, unlike those of the person's others."""
    slots, name = len(costs[0]), meeting["id"]
    unlike = np.where(np.eye(slots, dtype=bool), np.inf, 0.0)
    equal = np.where(np.eye(slots, dtype=bool), 0.0, np.inf)
    with session.changes() as changes:
        for person in meeting["participants"]:
            changes.add_variable(f"{person}.{name}", slots, f"person {person}")
            changes.add_factor([f"{person}.{name}"], table_of(costs, person, ties), name=f"cost {person}.{name}")
            for other in before:
                if person in other["participants"]:
                    changes.add_factor([f"{person}.{name}", f"{person}.{other['id']}"], unlike)
        first, *others = meeting["participants"]
        for person in others:
            changes.add_factor([f"{first}.{name}", f"{person}.{name}"], equal)


def arrive(task: Mapping[str, Any], stays: bool, ties: bool) -> Arrivals:
    """Take the meetings of a task one by one, in a session with or without the cost of moving."""
    costs, booked = [slot_costs(calendar) for calendar in task["calendars"]], dict[int, int]()
    problem = dmcmc.Problem.build(sense="min").problem()
    weights = {f"{p}.{m['id']}": UNIT * m["cost"] + ties for m in task["meetings"] for p in m["participants"]}
    session = dmcmc.Session(problem, stay={"weight": weights}) if stays else dmcmc.Session(problem)
    paid, times = 0, list[float]()
    with session.changes() as changes:
        for person in range(len(costs)):
            changes.add_agent(f"person {person}")
    for number, meeting in enumerate(task["meetings"]):
        start = time.perf_counter()
        add_meeting(session, meeting, costs, task["meetings"][:number], ties)
        result = session.solve()
        times.append(1e3 * (time.perf_counter() - start))
        assert result.status == "optimal" and result.assignment is not None
        meetings = task["meetings"][: number + 1]
        slots = {m["id"]: int(result.assignment[f"{m['participants'][0]}.{m['id']}"]) for m in meetings}
        payment = book(meetings, slots, booked, costs)
        paid += payment.cost
        with session.changes() as changes:
            for one in meetings:
                for person in payment.freed.intersection(one["participants"]):
                    changes.set_table(f"cost {person}.{one['id']}", table_of(costs, person, ties))
    return Arrivals(paid, times)


class Payment(NamedTuple):
    """The cost of booking some meetings, and the people of whom an appointment gives way."""

    cost: int
    freed: set[int]


def book(
    meetings: Sequence[Mapping[str, Any]],
    slots: Mapping[int, int],
    booked: dict[int, int],
    costs: Sequence[NDArray[np.int64]],
) -> Payment:
    """Book the meetings at their slots: a slot whose appointment gives way costs nothing from then on.

    ``booked`` and ``costs`` are changed.
    """
    paid, freed = 0, set[int]()
    for meeting in meetings:
        people, slot = meeting["participants"], slots[meeting["id"]]
        if meeting["id"] in booked and booked[meeting["id"]] != slot:
            paid += meeting["cost"] * len(people)
        booked[meeting["id"]] = slot
        for person in people:
            if costs[person][slot]:
                paid += int(costs[person][slot])
                costs[person][slot] = 0
                freed.add(person)
    return Payment(paid, freed)


def insert(task: Mapping[str, Any]) -> Arrivals:
    """Take the meetings one by one; booked ones never move."""
    costs = [slot_costs(calendar).astype(float) for calendar in task["calendars"]]
    paid, times = 0.0, list[float]()
    for meeting in task["meetings"]:
        start = time.perf_counter()
        total = sum(costs[person] for person in meeting["participants"])
        slot = int(np.argmin(total))
        paid += float(total[slot])
        for person in meeting["participants"]:
            costs[person][slot] = np.inf
        times.append(1e3 * (time.perf_counter() - start))
    return Arrivals(paid, times)


def main() -> None:
    """Run all tasks, and print the total costs and the time of an arrival."""
    parser = options(__file__, __doc__)
    parser.add_argument("--tasks", type=int, default=108)
    parser.add_argument("--ties", choices=("least-constraining", "none"), default="least-constraining")
    parser.add_argument("--shuffle", type=int, default=None, metavar="SEED")
    given = parser.parse_args()
    report = Report(__file__, given)
    path = instances("calbench") / "uniform.jsonl"
    tasks = [json.loads(line) for line in path.read_text("utf-8").splitlines()][: given.tasks]
    if given.shuffle is not None:
        rng = np.random.default_rng(given.shuffle)
        tasks = [shuffled(task, rng) for task in tasks]
    ties = given.ties != "none"
    ways = {
        "stay": [arrive(task, True, ties) for task in tasks],
        "anew": [arrive(task, False, ties) for task in tasks],
        "insert": [insert(task) for task in tasks],
    }
    report(f"{len(tasks)} tasks, {sum(len(task['meetings']) for task in tasks)} meetings")
    offline, greedy = (sum(task[name]["cost"] for task in tasks) for name in ("optimal", "greedy"))
    if given.shuffle is None:
        report(f"offline optimum {offline}, greedy {greedy}")
    for name, found in ways.items():
        times = [value for one in found for value in one.milliseconds]
        report(
            f"{name:7} cost {sum(one.cost for one in found):6g}, milliseconds an arrival: median"
            f" {statistics.median(times):7.2f}, largest {max(times):7.1f}"
        )
    report.keep()


if __name__ == "__main__":
    main()
