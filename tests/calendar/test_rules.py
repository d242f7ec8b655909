"""Rules of calendars: the optimum of the problem equals that of a naive enumeration."""

import random

import pytest
import yaml
from support.calendars.naive_score import best_score

import dmcmc
from dmcmc.calendars.file.problem import problem_of
from dmcmc.calendars.file.read import read_calendar
from dmcmc.files.text import SourceFile

HEAD = {"calendar": "Small", "first_day": "2027-03-01", "days": 2, "hours": "09:00-13:00", "slot": 60}


def random_calendar(seed):
    """Return the contents of a small random calendar with some of all rules."""
    rng = random.Random(seed)

    def perhaps(entry, chance, **values):
        entry |= {name: value for name, value in values.items() if rng.random() < chance}

    def rule(length=2):
        first = rng.randrange(5 - length)
        return f"{rng.choice(['Mon', 'Tue'])} {9 + first:02d}:00-{9 + first + length:02d}:00"

    people = {}
    for name in ("Ann", "Bob", "Cem"):
        people[name] = {"busy": [rule(1)] if rng.random() < 0.7 else [], "prefer": {rule(): rng.randint(-2, 4)}}
        if rng.random() < 0.4:
            people[name]["busy"].append({"when": rule(2), "cost": rng.randint(1, 4)})
        perhaps(
            people[name], 0.25, max_per_day=1, max_in_a_row=rng.choice([60, 120]), buffer=30, no_gaps=rng.randint(1, 3)
        )
        perhaps(
            people[name], 0.2, lunch={"between": "10:00-13:00", "minutes": rng.choice([60, 90])}, hours="09:00-12:00"
        )
    meetings = {}
    for i, name in enumerate("ABC"):
        attending = rng.sample(list(people), rng.randint(1, 2))
        others = [person for person in people if person not in attending]
        meetings[name] = {"people": attending, "slots": rng.randint(1, 2)}
        optional = {rng.choice(others): rng.randint(1, 3)}
        perhaps(meetings[name], 0.4, weight=rng.randint(0, 5), optional=optional, booked=f"Mon {9 + i:02d}:00")
        perhaps(meetings[name], 0.15, buffer=60, when=rule(3), fixed=f"Tue {9 + i:02d}:00", move_cost=2)
        if i:
            perhaps(meetings[name], 0.3, after={"A": rng.choice([0, 60])})
    content = HEAD | {"people": people, "meetings": meetings}
    perhaps(content, 0.3, move_cost={"per_participant": 2})
    perhaps(content, 0.3, early=1, fairness={"least_worst": rng.randint(1, 2), "spread": rng.randint(0, 1)})
    if rng.random() < 0.5:
        content["rooms"] = {"Blue": {}, "Red": {"count": rng.randint(1, 2)}}
        perhaps(content, 0.5, travel={"Blue - Red": rng.choice([30, 90])})
        perhaps(meetings["A"], 0.5, prefer_rooms={"Blue": 2})
        perhaps(meetings["B"], 0.3, room="none")
    return content


@pytest.mark.parametrize("seed", range(30))
def test_the_optimum_of_a_random_calendar_is_that_of_the_enumeration(seed):
    content = random_calendar(seed)
    calendar = read_calendar(SourceFile("small.yaml", yaml.safe_dump(content, sort_keys=False).encode()))
    expected = best_score(content)
    for copies in (True, False) if seed % 4 == 0 else (False,):
        result = dmcmc.solve(problem_of(calendar, copies), device="cpu")
        assert (result.status, result.objective) == (
            ("infeasible", None) if expected is None else ("optimal", expected)
        ), content
