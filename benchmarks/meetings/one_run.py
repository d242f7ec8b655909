"""Run one program on one meeting problem, and print a line of JSON; ``benchmarks.meetings.run`` starts it.

python -m benchmarks.meetings.one_run PROGRAM INSTANCE SECONDS
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmcmc
from benchmarks.meetings import b2b, calbench, maxsat
from dmcmc.files.text import open_source
from dmcmc.formats.meetings.timefold_plan import MeetingPlan, read_plan
from dmcmc.formats.meetings.timefold_problem import problem_of as timefold_problem
from dmcmc.formats.meetings.timefold_score import score
from dmcmc.generators.business_meetings import BusinessSchedule
from dmcmc.generators.business_meetings import problem_of as business_problem
from dmcmc.generators.timefold_meetings import TimefoldMeetings, plan_of
from dmcmc.inference.levels.results import level_values
from dmcmc.samplers.cp_sat.native_problem import MAX_TOTAL_COST, native_problem
from dmcmc.samplers.cp_sat.process import CpSatProcess
from dmcmc.samplers.toulbar2.whole_problem import costs_of_compact

SEARCH = {
    "without": "branch-and-bound",
    "with": "auto",
    "with-toulbar2": "toulbar2",
    "with-cp-sat": "cp-sat",
    "with-max-sat": "max-sat",
}
_POLL_SECONDS = 0.05

Line = dict[str, Any]


class Instance:
    """A problem, and what its definition says of an assignment.

    Attributes
    ----------
    problem : Problem
        The problem.
    source : BusinessSchedule, MeetingPlan or dict
        The data that it was made of.
    """

    def __init__(self, name: str) -> None:
        path = Path(name)
        if name.endswith(".dzn"):
            schedule = b2b.read(path)
            self.source: BusinessSchedule | MeetingPlan | Line = schedule
            self.problem = business_problem(schedule)
        elif ".jsonl:" in name:
            file, _, number = name.rpartition(":")
            task = list(calbench.tasks(Path(file)))[int(number)]
            self.source, self.problem = task, calbench.problem_of(task)
        else:
            if name.startswith("generated:"):
                plan = plan_of(TimefoldMeetings(meetings=int(name.split(":")[1]), seed=1))
            else:
                source = open_source(path)
                assert source is not None
                plan = read_plan(source)
            self.source, self.problem = plan, timefold_problem(plan)

    def checked(self, values: NDArray[np.int64]) -> str:
        """Return the objective of an assignment by the definition, as text."""
        labels = self.problem.assignment(values)
        if isinstance(self.source, BusinessSchedule):
            return str(b2b.breaks(self.source, [int(slot) for slot in labels.values()]))
        if isinstance(self.source, MeetingPlan):
            rooms = {room: i for i, (room, _) in enumerate(self.source.rooms)}
            starts = [int(labels[f"start {meeting.name}"]) for meeting in self.source.meetings]
            places = [rooms[str(labels[f"room {meeting.name}"])] for meeting in self.source.meetings]
            return str(score(self.source, starts, places))
        return str(self.problem.evaluate(values).objective)


def run_dmcmc(instance: Instance, search: str, seconds: float) -> Line:
    """Solve a problem with a time limit."""
    result = dmcmc.solve(instance.problem, timeout=seconds, search=search)
    problem = instance.problem
    feasible = [point.time for point in result.trace if point.objective is not None]
    found = None if result.assignment is None else problem.values_of(result.assignment)
    return {
        "status": result.status,
        "first": min(feasible, default=None),
        "objective": result.objective,
        "bound": result.bound,
        "levels": [[level.name, level.objective, level.bound] for level in result.levels],
        "checked": None if found is None or result.violation else instance.checked(found),
        "violation": result.violation,
        "seconds": result.time,
    }


def run_cp_sat(instance: Instance, seconds: float) -> Line:
    """Let CP-SAT search the problem alone, with one worker."""
    start, problem = time.perf_counter(), instance.problem
    costs = costs_of_compact(native_problem(problem), max_total=MAX_TOTAL_COST)
    first = None
    with CpSatProcess() as engine:
        progress = engine.start(costs, None, seconds)
        while not progress.ended:
            if first is None and progress.values is not None:
                first = time.perf_counter() - start
            time.sleep(_POLL_SECONDS)
    if first is None and progress.values is not None:
        first = time.perf_counter() - start
    bound = problem.to_own_sense(costs.bound(progress.lower))
    values = progress.values
    return {
        "status": "optimal" if progress.complete and values is not None else "timeout",
        "first": first,
        "objective": None if values is None else problem.evaluate(values).objective,
        "bound": bound,
        "levels": [list(level)[:3] for level in level_values(problem, values, bound)] if problem.levels else [],
        "checked": None if values is None else instance.checked(values),
        "violation": None if values is None else problem.evaluate(values).violation,
        "seconds": time.perf_counter() - start,
    }


def run_maxsat(instance: Instance) -> Line:
    """Let RC2 solve a business-to-business schedule."""
    if not isinstance(instance.source, BusinessSchedule):
        return {"error": "is no business-to-business schedule"}
    optimum, slots, seconds = maxsat.solve(instance.source)
    checked = None if slots is None else str(b2b.breaks(instance.source, slots))
    status = "infeasible" if slots is None else "optimal"
    return {"status": status, "objective": optimum, "bound": optimum, "checked": checked, "seconds": seconds}


def main() -> None:
    """Run the program, and print its line with the seconds of building and the peak memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="cp-sat-alone, maxsat-alone or one of: " + ", ".join(SEARCH))
    parser.add_argument("instance", help="name of the problem")
    parser.add_argument("seconds", type=float, help="time limit")
    given = parser.parse_args()
    program, name, seconds = given.program, given.instance, given.seconds
    start = time.process_time()
    instance = Instance(name)
    building = time.process_time() - start
    if program == "cp-sat-alone":
        line = run_cp_sat(instance, seconds)
    elif program == "maxsat-alone":
        line = run_maxsat(instance)
    else:
        line = run_dmcmc(instance, SEARCH[program], seconds)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    line |= {"building": building, "processor": usage.ru_utime, "memory": usage.ru_maxrss << 10}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
