"""CalBench's tasks as problems: meetings are put into calendars whose appointments can give way at a cost."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dmcmc.inference.model.problem import Problem


def tasks(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the tasks of a file, one per line."""
    with open(path) as stream:
        for line in stream:
            yield json.loads(line)


def problem_of(task: dict[str, Any]) -> Problem:
    """Return a task in the PEAV model: an agent per person, with a variable for each of its meetings.

    All participants of a meeting choose the same slot; a person has one meeting at a time, and an appointment in its
    slot costs what it costs to move it.

    Parameters
    ----------
    task : dict
        A task. An entry of a calendar is None if the slot is free, an object with a ``cost``, or one without if the
        slot is blocked.
    """
    build = Problem.build(sense="min", name=str(task["task_id"]))
    own: list[list[str]] = [[] for _ in task["calendars"]]
    for meeting in task["meetings"]:
        copies = []
        for p in meeting["participants"]:
            entries = task["calendars"][p]
            price = [0 if entry is None else entry.get("cost", np.inf) for entry in entries]
            length = int(meeting["duration"])
            name = build.variable(f"{p}: {meeting['id']}", len(entries) - length + 1, agent=f"person {p}")
            build.factor(name, [sum(price[s : s + length]) for s in range(len(entries) - length + 1)])
            copies.append((name, len(entries) - length + 1))
            own[p].append(name)
        for (first, size), (second, _) in pairwise(copies):
            build.factor((first, second), np.where(np.eye(size, dtype=bool), 0, np.inf))
    lengths = {f"{p}: {m['id']}": int(m["duration"]) for m in task["meetings"] for p in m["participants"]}
    for names in own:
        if len(names) > 1:
            build.no_overlap(names, [lengths[name] for name in names])
    return build.problem()
