"""Simulated time on a clock that is made up: each agent's own work, after what it waits for, and nothing else."""

from types import SimpleNamespace

import pytest

from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.mpi import phases
from dmcmc.mpi.contents import Chosen, Utils
from dmcmc.mpi.post import Post
from dmcmc.mpi.world import World

TREE = PseudoTree(
    parent=(-1, 0, 0, 1),
    children=((1, 2), (3,), (), ()),
    bottom_up=(3, 2, 1, 0),
    separators=((),) * 4,
    placed=((),) * 4,
)
TABLES = {0: 5.0, 1: 1.0, 2: 10.0, 3: 2.0}  # when each agent's own table is ready
UTIL, VALUE = {0: 2.0, 1: 3.0, 2: 1.0, 3: 4.0}, 1.0  # what its steps take


@pytest.fixture
def clock(monkeypatch):
    """A clock that only work moves on."""
    made_up = SimpleNamespace(now=100.0)
    made_up.perf_counter = lambda: made_up.now
    monkeypatch.setattr(phases, "time", made_up)
    return made_up


def test_an_agent_waits_for_its_children_and_works_as_long_as_it_does(clock, monkeypatch):
    def work(agent, messages):
        clock.now += UTIL[agent]
        return SimpleNamespace(message=Utils((), None))

    def known(steps, separators, context):
        clock.now += VALUE
        return Chosen({}, None)

    monkeypatch.setattr(phases, "known_values", known)
    clocks, post, sent = dict(TABLES), Post(World(), (0,) * 4), {}
    steps = phases.util_phase(TREE, post, clocks, work, sent)
    # 3: 2 + 4; 1: its child's 6 + 3; 2: 10 + 1; 0: its slower child's 11 + 2
    assert clocks == {3: 6.0, 1: 9.0, 2: 11.0, 0: 13.0}
    _, _, down = phases.value_phase(TREE, post, clocks, steps, [((), ())] * 4)
    assert clocks == {0: 14.0, 1: 15.0, 2: 15.0, 3: 16.0}
    assert {a: s.count for a, s in sent.items()} == {1: 1, 2: 1, 3: 1}
    assert {a: s.count for a, s in down.items()} == {0: 2, 1: 1, 2: 0, 3: 0}
