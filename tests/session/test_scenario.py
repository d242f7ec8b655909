"""A scenario changes a problem event by event; each answer is that of a new run of the changed problem."""

import json

import pytest
from support.ranks import documents, in_turn, needs_mpirun

import dmcmc
from dmcmc.cli.main import main
from dmcmc.config.settings import Budget, Settings, Stay
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.results.questions import read_events
from dmcmc.session.scenario import external_tables, read_scenario, run_scenario
from dmcmc.session.session import Session

PROBLEM = """
name: lights
objective: min
domains: {level: {values: [0, 1, 2]}, switch: {values: [0, 1]}}
variables: {l1: {domain: level}, l2: {domain: level}, l3: {domain: level}}
external_variables: {night: {domain: switch, initial_value: 0}}
constraints:
  c1: {type: intention, function: 4 * abs(l1 - 2 * night)}
  c2: {type: intention, function: 2 * abs(l1 - l2)}
  c3: {type: intention, function: 3 * abs(l2 - l3) + l3}
agents: [a1, a2, a3]
"""

EVENTS = """
events:
  - {id: wait, delay: 30}
  - id: dark
    actions: [{type: set_external_variable, variable: night, value: 1}]
  - {id: wait again, delay: 0.5}
  - id: broken
    actions:
      - {type: move_variable, variable: l2, agent: a1}
      - {type: remove_agent, agent: a3}
  - id: cheap
    actions: [{type: set_table, factor: c2, table: [[0, 0, 0], [0, 0, 0], [0, 0, 0]]}]
  - id: new
    actions:
      - {type: add_agent, agent: a4}
      - {type: add_variable, variable: l4, domain: [0, 1], agent: a4}
      - {type: add_factor, scope: [l4, l1], table: [[0, 0, 9], [0, 0, 1]], name: c4}
"""


def written(tmp_path, events=EVENTS):
    for name, text in (("p.yaml", PROBLEM), ("s.yaml", events)):
        (tmp_path / name).write_text(text)
    (tmp_path / "run.yaml").write_text("problem: {file: p.yaml, scenario: s.yaml}\n")
    return str(tmp_path / "p.yaml"), str(tmp_path / "s.yaml"), str(tmp_path / "run.yaml")


def results(tmp_path, settings=None, events=EVENTS):
    problem, scenario, _ = written(tmp_path, events)
    external = external_tables(problem, None)
    settings = settings or Settings()
    session = Session(dmcmc.load(problem), settings)
    return run_scenario(session, read_scenario(scenario), settings.budget.time, external=external).events


def test_events_have_their_clocks_and_the_time_until_the_next_one(tmp_path):
    events = read_scenario(written(tmp_path)[1])
    assert [(event.name, event.clock, event.seconds) for event in events] == [
        ("start", 0, 30),
        ("dark", 30, 0.5),
        ("broken", 30.5, 0),
        ("cheap", 30.5, 0),
        ("new", 30.5, float("inf")),
    ]


@pytest.mark.parametrize("settings", [Settings(), Settings(budget=Budget(time=20.0))])
def test_every_answer_is_the_optimum_of_the_changed_problem(tmp_path, settings):
    found, values = results(tmp_path, settings), {}
    # dark: l1 = l2 = l3 = 2 costs 2; broken: no l3; cheap: l1 and l2 are free of each other; new: l4 = 1 costs 1
    assert [event.objective for event in found] == [0, 2, 0, 0, 1]
    assert all(event.status == "optimal" and event.bound == event.objective for event in found)
    for event in found:
        values |= event.changed
        assert all(name not in values or values.pop(name) is not None for name in event.removed)
    assert values["l1"] == 2 and values["l4"] == 1 and "l3" not in values
    assert all(event.reaction is not None and event.reaction <= event.time for event in found)
    assert found[2].removed == ("l3",) and found[4].actions[0] == "add agent a4"


def test_with_stay_moving_costs_and_its_cost_is_reported(tmp_path):
    found = results(tmp_path, Settings(stay=Stay(0.25)))
    assert [event.objective for event in found][:2] == [0, 2.75] and found[0].moving_cost is None
    assert (found[1].moving_cost, found[1].moved) == (0.75, 3)
    assert [event.moving_cost for event in found[2:]] == [0, 0, 0]


def test_the_command_writes_a_line_for_each_event_and_the_report_shows_them(tmp_path, capsys):
    run, output = written(tmp_path)[2], tmp_path / "out.jsonl"
    assert main(["run", run, "--output", str(output)]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("start", "dark", "broken", "cheap", "new"))
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["start", "dark", "broken", "cheap", "new"]
    assert [event.objective for event in read_events(output)] == [line["objective"] for line in lines]
    assert main(["report", str(output)]) == 0
    page = (tmp_path / "out.html").read_text()
    for title in ("Objective and bound", "Gap", "Time to the first", "Variables that moved", "remove agent a3"):
        assert title in page


@needs_mpirun
def test_ranks_go_through_the_events_together(tmp_path):
    run = written(tmp_path)[2]
    together = documents(in_turn(2, ["run", run, "--json"]).stdout)[0]["events"]
    alone = results(tmp_path)
    for key in ("event", "status", "objective", "bound", "moved", "changed", "clock", "msg_count"):
        assert [event[key] for event in together] == [getattr(event, key) for event in alone], key


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ("3", "expected a list of events, got 3"),
        ("[{id: e}]", "expected an event with either 'delay' or 'actions'"),
        ("[{delay: -1}]", "delay: expected seconds >= 0, got -1"),
        ("[{actions: [{type: explode}]}]", "unknown action 'explode'"),
        ("[{actions: [{type: remove_agent}]}]", "remove_agent: 'agent' is missing"),
        ("[{actions: [{type: remove_agent, agent: a9}]}]", "agent 'a9' does not exist"),
        ("[{actions: [{type: set_external_variable, variable: day, value: 1}]}]", "variable 'day' does not exist"),
        ("[{actions: [{type: set_table, factor: c2, table: [1, 2]}]}]", "c2"),
        ("[{actions: [{type: remove_factor, factor: no}]}]", "remove_factor: factor: expected a name, got false"),
        ("[{actions: [{type: add_factor, scope: [v1], table: [1, 2], name: yes}]}]", "name: expected a name, got true"),
    ],
)
def test_what_is_not_allowed_is_named_in_one_line(tmp_path, events, message):
    with pytest.raises(DmcmcError) as error:
        results(tmp_path, events=f"events: {events}\n")
    assert message in str(error.value) and "\n" not in str(error.value)
