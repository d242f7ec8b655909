"""Clashes of a person's meetings: one constraint forbids the same as tables over pairs of meetings."""

import random
from itertools import permutations, product

import numpy as np
import pytest
import yaml
from support.runs import sizes

import dmcmc
from dmcmc.calendars.explain import explain
from dmcmc.calendars.file import person_rules
from dmcmc.calendars.file.problem import problem_of
from dmcmc.calendars.file.read import read_calendar
from dmcmc.calendars.solve import solve_calendar
from dmcmc.files.text import SourceFile
from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.constraints.no_overlap import NoOverlapConstraint

MAX_ASSIGNMENTS = 700


def calendar_of(content):
    """Return the calendar of a file's contents."""
    return read_calendar(SourceFile("small.yaml", yaml.safe_dump(content, sort_keys=False).encode()))


def crowded(seed):
    """Return the contents of a random calendar of two people who share a day or two with four meetings."""
    rng = random.Random(seed)
    days = rng.randint(1, 2)
    people = {"Ann": {"no_gaps": rng.randint(0, 2)}, "Bob": {}}
    if rng.random() < 0.5:
        people[rng.choice(["Ann", "Bob"])]["buffer"] = 60
    content = {"calendar": "Crowded", "first_day": "2027-03-01", "days": days, "slot": 60, "people": people}
    content["hours"] = "09:00-12:00" if days == 2 else "09:00-14:00"
    if rng.random() < 0.3:
        content["rooms"] = {"Blue": {}, "Red": {}}
        content |= {"travel": {"Blue - Red": 60}} if rng.random() < 0.5 else {}
    longest, meetings = rng.randint(1, 2), {}
    for name in "ABCD":
        one = rng.choice([["Ann"], ["Ann", "Bob"]])
        meetings[name] = {"people": one, "slots": rng.randint(1, longest)}
        meetings[name] |= {"weight": 2} if rng.random() < 0.3 else {}
        meetings[name] |= {"optional": {"Bob": 1}} if one == ["Ann"] and rng.random() < 0.4 else {}
        meetings[name] |= {"buffer": 60} if rng.random() < 0.1 else {}
    meetings["D"] |= {"after": "A"} if rng.random() < 0.3 else {}
    return content | {"meetings": meetings}


def evaluations(given, assignments):
    """Return the objective of each assignment; None if it is forbidden."""
    found = (given.evaluate(np.array(values)) for values in assignments)
    return [None if x.violation else x.objective for x in found]


@pytest.mark.parametrize("copies", [False, True])
def test_constraints_and_pairs_allow_the_same(monkeypatch, copies):
    kinds, feasible = set(), 0
    for seed in range(12 if copies else 24):
        calendar, rng = calendar_of(crowded(seed)), random.Random(seed)
        with monkeypatch.context() as patch:
            patch.setattr(person_rules, "meetings_apart", lambda *_: None)
            pairs = problem_of(calendar, copies)
        with monkeypatch.context() as patch:
            patch.setattr(person_rules, "MAX_ENUMERATED_ENTRIES", 0)
            patch.setattr(person_rules, "tuning", sizes(MAJORITY_SHARE=0))
            constraints = problem_of(calendar, copies)
        domains = [range(size) for size in pairs.domains.tolist()]
        if np.prod(pairs.domains.astype(float)) <= MAX_ASSIGNMENTS:
            assignments = list(product(*domains))
        else:
            assignments = [[rng.choice(values) for values in domains] for _ in range(MAX_ASSIGNMENTS)]
        if copies:  # most assignments give participants different times
            first = {name.partition(": ")[2]: v for v, name in reversed([*enumerate(pairs.variables)])}
            same = [first[name.partition(": ")[2]] for name in pairs.variables]
            assignments = [
                [x[u] if pairs.domains[u] == pairs.domains[v] else x[v] for v, u in enumerate(same)]
                for x in assignments
            ]
        expected = evaluations(pairs, assignments)
        assert evaluations(constraints, assignments) == expected
        kinds |= {type(f).__name__ for f in constraints.factors if isinstance(f, GlobalConstraint)}
        feasible += sum(x is not None for x in expected)
    assert kinds >= {"AllDifferentConstraint", "NoOverlapConstraint"} and feasible > 100


def busy_person(meetings=7, slots=8, **more):
    """Return the contents of a calendar of one person with meetings of one slot each, which prefer some slots."""
    names = "ABCDEFGHIJ"[:meetings]
    rng = random.Random(1)
    prefer = {name: {f"{9 + s:02}:00-{10 + s:02}:00": rng.randint(0, 9) for s in range(slots)} for name in names}
    entries = {name: {"people": ["Ann"], "prefer": prefer[name], **more} for name in names}
    head = {"calendar": "Busy", "first_day": "2027-03-01", "days": 1, "hours": f"09:00-{9 + slots:02}:00", "slot": 60}
    return head | {"people": {"Ann": {}}, "meetings": entries}


@pytest.mark.parametrize("search", ["auto", "cp-sat", "max-sat", "none"])
def test_all_engines_solve_the_calendar_of_a_busy_person(search):
    if search == "cp-sat":
        pytest.importorskip("ortools")
    if search == "max-sat":
        pytest.importorskip("pysat")
    content = busy_person()
    given = problem_of(calendar_of(content))
    (constraint,) = [f for f in given.factors if isinstance(f, GlobalConstraint)]
    assert constraint.name == "A, B, C, D, E, F and G of Ann"
    points = np.array([list(entry["prefer"].values()) for entry in content["meetings"].values()])
    orders = np.array(list(permutations(range(8), 7)))
    best = points[np.arange(7), orders].sum(axis=1).max()
    result = dmcmc.solve(given, timeout=6, search=search, device="cpu")
    assert (result.status, result.objective) == ("optimal", best)


def test_the_conflict_of_a_busy_person_names_meetings_and_person():
    conflict = explain(calendar_of(busy_person(9)), 5, solve_calendar)
    assert conflict.summary.startswith("these 9 meetings cannot all take place: A, B, C, D, E, F, G, H, I; Ann would")


def test_small_and_idle_people_keep_their_tables():
    few, idle = busy_person(5), busy_person(7) | {"days": 5}
    assert problem_of(calendar_of(few)).dense and problem_of(calendar_of(idle)).dense


def test_meetings_with_different_lengths_do_not_overlap():
    content = busy_person(7, 12)
    content["meetings"]["A"]["slots"] = 2
    (constraint,) = [f for f in problem_of(calendar_of(content)).factors if isinstance(f, GlobalConstraint)]
    assert isinstance(constraint, NoOverlapConstraint) and constraint.durations == (2, 1, 1, 1, 1, 1, 1)
    content["meetings"]["B"]["buffer"] = 60  # only some pairs of meetings need a break
    assert problem_of(calendar_of(content)).dense
    content["people"]["Ann"]["buffer"] = 60
    (constraint,) = [f for f in problem_of(calendar_of(content)).factors if isinstance(f, GlobalConstraint)]
    assert constraint.durations == (3, 2, 2, 2, 2, 2, 2)
