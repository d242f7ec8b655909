"""Count what agents send and disclose in tasks of CalBench.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.calendars.calbench_disclosure [--tasks 108] [--output FILE]

``FOLDER/calbench/uniform.jsonl`` holds the tasks (CalBench, arXiv 2605.09823). Each person is an agent with a variable
for each of its meetings (PEAV), and all meetings of a task are planned at once, exactly and without presolve.
``--rows all`` sends every row of a UTIL message, ``--rows usable`` only those that the receiver can use; then requests
are messages, too. ``disclosed`` is the sum over agents of the field of the results: an upper bound on the number of
costs of the agents' appointments that others can reconstruct. Tasks whose tables do not fit in memory are counted.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

import dmcmc
from benchmarks.harness import Report, instances, options
from dmcmc.inference.runtime.errors import ResourceError

KINDS = ("UTIL", "USABLE")  # messages that are counted


def problem_of(task: Mapping[str, Any]) -> dmcmc.Problem:
    """Return the problem of all meetings of a task: the costs of appointments, equal and unlike slots."""
    builder = dmcmc.Problem.build(sense="min")
    slots = len(task["calendars"][0])
    unlike = np.where(np.eye(slots, dtype=bool), np.inf, 0.0)
    equal = np.where(np.eye(slots, dtype=bool), 0.0, np.inf)
    of_person: list[list[str]] = [[] for _ in task["calendars"]]
    for meeting in task["meetings"]:
        names = [f"{person}.{meeting['id']}" for person in meeting["participants"]]
        for person, name in zip(meeting["participants"], names, strict=True):
            builder.variable(name, slots, agent=f"person {person}")
            costs = [0 if slot is None else int(slot["cost"]) for slot in task["calendars"][person]]
            builder.factor([name], np.array(costs))
            for other in of_person[person]:
                builder.factor([other, name], unlike)
            of_person[person].append(name)
        for name in names[1:]:
            builder.factor([names[0], name], equal)
    return builder.problem()


def main() -> None:
    """Solve the tasks and print the sums."""
    parser = options(__file__, __doc__)
    parser.add_argument("--tasks", type=int, default=108)
    parser.add_argument("--rows", choices=("all", "usable"), default=("all", "usable"), nargs="+")
    given = parser.parse_args()
    report = Report(__file__, given)
    with open(instances() / "calbench" / "uniform.jsonl") as lines:
        tasks = [json.loads(line) for line, _ in zip(lines, range(given.tasks), strict=False)]
    for rows in given.rows:
        results, failed, start = list[dmcmc.Result](), 0, time.process_time()
        for task in tasks:
            try:
                result = dmcmc.solve(problem_of(task), presolve="none", device="cpu", combine={"rows": rows})
                results.append(result)
            except ResourceError:
                failed += 1
        seconds = time.process_time() - start
        proven = sum(result.status == "optimal" for result in results)
        cost = sum(result.objective or 0 for result in results)
        report(f"rows {rows}: {len(tasks)} tasks, {proven} proven, {failed} too large, cost {cost:g}, {seconds:.1f} s")
        agents = [agent for result in results for agent in result.agents]
        utils, requests = (sum(a.messages[kind].size for a in agents if kind in a.messages) for kind in KINDS)
        disclosed, own = sum(agent.disclosed for agent in agents), sum(agent.own_utilities for agent in agents)
        report(
            f"  {utils:,} bytes of UTIL messages, {requests:,} bytes of requests,"
            f" disclosed {disclosed:,} of {own:,} utilities"
        )
    report.keep()


if __name__ == "__main__":
    main()
