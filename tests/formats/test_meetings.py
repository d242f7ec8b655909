"""TimefoldMeeting-scheduling files of Timefold and CSPLib, and generated problems like them."""

import json
from itertools import product

import numpy as np
import pytest
from support.timefold_meetings import score

import dmcmc
from dmcmc.formats.meetings.timefold import MeetingPlan, TimefoldMeeting, problem_of
from dmcmc.formats.registry import parse, save
from dmcmc.generators.meetings import TimefoldMeetings, plan_of
from dmcmc.inference.building.levels import level_values
from dmcmc.inference.runtime.errors import FileError

TRAVEL = """Number of meetings: 3
Number of agents: 2
Domain size: 4
Agents' meetings:
Agents (1): 0 1
Agents (2): 1 2
Between meetings distance:
     0 1 2
0:   0 1 3
1:   1 0 0
2:   3 0 0
"""


def test_travel_times_keep_meetings_of_an_agent_apart():
    problem = parse(TRAVEL.encode())
    for values in product(range(4), repeat=3):
        feasible = abs(values[0] - values[1]) > 1 and values[1] != values[2]
        assert (problem.evaluate(np.array(values)).violation == 0) == feasible
    counted_from_one = TRAVEL.replace("Agents (1): 0 1", "Agents (1): 1 2").replace("(2): 1 2", "(2): 2 3")
    assert parse(counted_from_one.encode()).factors == problem.factors


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Domain size: 4\n", "", "does not state the domain size"),
        ("0 1 3", "0 1", "3 rows of 3 distances"),
        ("(2): 1 2", "(2): 1 9", "outside 0..2"),
        ("2:   3 0 0", "nonsense", "line 11: is no row"),
    ],
)
def test_an_incomplete_file_gives_one_line(old, new, message):
    with pytest.raises(FileError, match=message):
        parse(TRAVEL.replace(old, new).encode())


def drawn(seed):
    """Return a small plan with rooms of equal and different sizes."""
    rng = np.random.default_rng(seed)
    meetings = []
    for m in range(3):
        people = rng.permutation(4)[: rng.integers(2, 5)].tolist()
        required = int(rng.integers(1, len(people)))
        grains = int(rng.integers(1, 4))
        meetings.append(TimefoldMeeting(str(m), "", grains, tuple(people[:required]), tuple(people[required:])))
    return MeetingPlan(
        "small", tuple(meetings), ("a", "b", "c", "d"), (("x", 4), ("y", 6), ("z", 9)), (0,) * 5 + (1,) * 4
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_objective_in_levels_is_the_score(seed):
    plan = drawn(seed)
    problem, rng = problem_of(plan), np.random.default_rng(seed)
    position = {name: i for i, name in enumerate(problem.variables)}
    scores = []
    for _ in range(200):
        values = np.array([rng.integers(size) for size in problem.domains])
        labels = problem.assignment(values)
        starts = [labels[f"start {m}"] for m in range(3)]
        rooms = ["xyz".index(labels[f"room {m}"]) for m in range(3)]
        expected, levels = score(plan, starts, rooms), level_values(problem, values, None)
        evaluation = problem.evaluate(values)
        assert (evaluation.violation == 0) == (expected.hard == 0)
        assert levels[2].objective == expected.soft
        if expected.hard == 0:
            assert [level.objective for level in levels] == list(expected)
            scores.append((evaluation.objective, expected))
    assert position
    assert [s for _, s in sorted(scores)] == sorted(s for _, s in scores)  # lexicographic


def test_a_file_of_timefold_is_read_and_its_optimum_reported_by_levels():
    plan = drawn(3)
    text = as_json(plan)
    problem = parse(text.encode())
    assert problem.factors == problem_of(plan).factors
    best = max(
        score(plan, values[:3], values[3:]) for values in product(range(6), range(6), range(6), *3 * [range(3)])
        if all(fits(plan, m, values[m]) for m in range(3))
    )  # fmt: skip
    result = dmcmc.solve(problem, method="exact")
    assert [(level.name, level.objective, level.bound) for level in result.levels] == [
        (name, value, value) for name, value in zip(("hard", "medium", "soft"), best, strict=True)
    ]


def fits(plan, m, start):
    """Return whether a meeting ends on the day on which it starts."""
    last = start + plan.meetings[m].grains - 1
    return last < len(plan.days) and plan.days[start] == plan.days[last]


def as_json(plan):
    """Return a plan as Timefold writes it: an object where it appears first, and its number afterwards."""
    seen = set()

    def person(p):
        key = f"Person#{p}"
        if key in seen:
            return key
        seen.add(key)
        return {"@id": key, "id": p, "fullName": plan.persons[p]}

    def attendances(kind, m, people):
        return [{"@id": f"{kind}#{m}.{p}", "person": person(p), "meeting": f"Meeting#{m}"} for p in people]

    meetings = [
        {
            "@id": f"Meeting#{m}", "id": m, "topic": "", "durationInGrains": meeting.grains,
            "requiredAttendanceList": attendances("Required", m, meeting.required),
            "preferredAttendanceList": attendances("Preferred", m, meeting.preferred),
        }
        for m, meeting in enumerate(plan.meetings)
    ]  # fmt: skip
    days = [{"@id": f"Day#{d}"} for d in sorted(set(plan.days))]
    grains = [{"@id": f"Grain#{g}", "grainIndex": g, "day": f"Day#{d}"} for g, d in enumerate(plan.days)]
    rooms = [{"@id": f"Room#{r}", "name": name, "capacity": size} for r, (name, size) in enumerate(plan.rooms)]
    assignments = [{"meeting": f"Meeting#{m}", "startingTimeGrain": None, "room": None} for m in range(len(meetings))]
    persons = [person(p) for p in range(len(plan.persons))]
    return json.dumps({
        "id": 0, "meetingList": meetings, "dayList": days, "timeGrainList": grains, "roomList": rooms,
        "personList": persons, "meetingAssignmentList": assignments,
    })  # fmt: skip


def test_levels_are_kept_in_a_native_file(tmp_path):
    problem = dmcmc.generate("timefold-meetings", meetings=4)
    save(problem, tmp_path / "levels.npz")
    loaded = dmcmc.load(tmp_path / "levels.npz")
    assert loaded == problem
    assert (tuple(loaded.levels), tuple(loaded.level_of)) == (tuple(problem.levels), tuple(problem.level_of))


@pytest.mark.parametrize("text", ["{", '{"durationInGrains": 1}', '{"meetingAssignmentList": [], "timeGrainList": 3}'])
def test_a_broken_file_gives_one_line(text):
    with pytest.raises(FileError, match=r"^text: "):
        parse(text.encode(), format="timefold")


def test_generated_problems_are_like_the_real_ones():
    plan = plan_of(TimefoldMeetings(meetings=100))
    assert (len(plan.meetings), len(plan.persons), len(plan.days)) == (100, 80, 320)
    problem = dmcmc.generate("timefold-meetings", meetings=10)
    assert [level.name for level in problem.levels] == ["hard", "medium", "soft"]
    business = dmcmc.generate("business-meetings", participants=9, slots=4, tables=3)
    result = dmcmc.solve(business, method="exact")
    assert result.status == "optimal" and result.objective >= 0
