"""Simulated time on an artificial clock: an agent's work after the messages that it waits for, and nothing else."""

import json
from types import SimpleNamespace

import pytest

from dmcmc import generate, solve
from dmcmc.inference.dpop.agent_step import ChosenValues, Clock, UtilTables
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.mpi import message_phases
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.world import World

TREE = PseudoTree(
    parent=(-1, 0, 0, 1),
    children=((1, 2), (3,), (), ()),
    bottom_up=(3, 2, 1, 0),
    separators=((),) * 4,
    placed=((),) * 4,
)
TABLES = {0: 5.0, 1: 1.0, 2: 10.0, 3: 2.0}  # when each agent's own table is ready
UTIL, VALUE = {0: 2.0, 1: 3.0, 2: 1.0, 3: 4.0}, 1.0  # time of each agent's steps


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that only work advances."""
    artificial = SimpleNamespace(now=100.0)
    artificial.perf_counter = lambda: artificial.now
    monkeypatch.setattr(message_phases, "time", artificial)
    return artificial


def test_an_agents_clock_is_that_of_its_slowest_child_plus_its_own_work(clock, monkeypatch):
    def work(agent, messages):
        clock.now += UTIL[agent]
        return SimpleNamespace(message=UtilTables((), None), cells=10**agent)

    def known(steps, separators, context):
        clock.now += VALUE
        return ChosenValues({}, None)

    monkeypatch.setattr(message_phases, "known_values", known)
    clocks = {agent: Clock(seconds, 5000 if agent == 2 else 0) for agent, seconds in TABLES.items()}
    post, sent = Mailbox(World(), (0,) * 4), {}
    steps = {}
    for agent, messages in message_phases.util_turns(TREE, post, clocks, steps, sent):
        steps[agent] = work(agent, messages)
    post.close()
    # 3: 2 + 4; 1: its child's 6 + 3; 2: 10 + 1; 0: its slower child's 11 + 2
    assert {agent: clock.seconds for agent, clock in clocks.items()} == {3: 6.0, 1: 9.0, 2: 11.0, 0: 13.0}
    # checks: 3: 1000; 1: its child's 1000 + 10; 2: its table's 5000 + 100; 0: its child's 5100 + 1
    assert {agent: clock.checks for agent, clock in clocks.items()} == {3: 1000, 1: 1010, 2: 5100, 0: 5101}
    _, _, down = message_phases.value_phase(TREE, post, clocks, steps, [((), ())] * 4)
    assert {agent: clock.seconds for agent, clock in clocks.items()} == {0: 14.0, 1: 15.0, 2: 15.0, 3: 16.0}
    assert {clock.checks for clock in clocks.values()} == {5101}
    assert {a: s.count for a, s in sent.items()} == {1: 1, 2: 1, 3: 1}
    assert {a: s.count for a, s in down.items()} == {0: 2, 1: 1, 2: 0, 3: 0}


def test_messages_are_counted_by_kind_and_joined_cells_by_agent():
    problem = generate("meeting-scheduling", agents=4, variables_per_agent=3, domain_size=3, seed=0)
    result = solve(problem, local={"method": "exact"})
    assert {kind: n.count for kind, n in result.messages.items()} == {"UTIL": 3, "VALUE": 3}
    assert sum(n.size for n in result.messages.values()) == result.msg_size and result.control == {}
    assert sum(a.messages["UTIL"].count for a in result.agents if "UTIL" in a.messages) == 3
    assert 0 < max(a.cells for a in result.agents) < result.ncccs
    assert json.loads(result.to_json())["messages"]["UTIL"]["count"] == 3
