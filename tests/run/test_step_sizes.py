"""Tables of UTIL steps take what there is room for; where a parent has too little, its children send narrower ones."""

import json
import time

import numpy as np
import pytest
from support.ranks import needs_mpirun, start
from support.runs import answer, begun

from dmcmc import Factor, Problem
from dmcmc.formats import native
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.run.planning.combination_plan import TooWide, attempts_of, narrowed
from dmcmc.run.util_value_cycle import run_cycle

TIGHT = {"memory": 1 << 18}

SOLVE = """
import sys
import dmcmc
from dmcmc.formats import native
from dmcmc.mpi.world import connect

world = connect()
result = dmcmc.solve_on(world, native.load(sys.argv[1]), budget={"memory": 1 << 18})
if world.rank == 0:
    print(result.to_json())
"""


def many_small_agents(seed=0, variables=50, agents=25):
    """Two variables an agent, and factors between any of them: messages are wide."""
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for b in range(variables) for a in range(b) if rng.random() < 0.3]
    factors = tuple(Factor.of(pair, rng.integers(0, 100, (2, 2))) for pair in pairs)
    names = tuple(f"x{v}" for v in range(variables)), tuple(f"a{a}" for a in range(agents))
    return Problem(names[0], np.full(variables, 2), names[1], np.arange(variables) * agents // variables, factors)


def facts(result):
    return result["objective"], result["bound"], [agent["z"] for agent in result["agents"]]


@needs_mpirun
def test_messages_that_leave_a_parent_no_room_are_made_again_with_a_smaller_z(tmp_path):
    problem = many_small_agents()
    alone = answer(problem, budget=TIGHT)
    assert alone.status == "feasible" and alone.objective < alone.bound
    tree = alone.provenance["plan"]["pseudo_tree"]
    assert alone.msg_count > 2 * sum(parent is not None for parent in tree.values())  # some were sent twice
    native.save(problem, tmp_path / "problem.npz")
    (tmp_path / "solve.py").write_text(SOLVE)
    done = start(2, str(tmp_path / "solve.py"), str(tmp_path / "problem.npz"))
    assert done.returncode == 0, done.stderr
    assert facts(json.loads(done.stdout)) == facts(json.loads(alone.to_json()))


def test_what_narrower_messages_cannot_help_is_refused():
    setup = begun(many_small_agents()).setup
    error = TooWide("no room")
    error.agent = next(a for a, children in enumerate(setup.tree.children) if children)
    error.z = 4
    limits = narrowed(setup.tree, {}, error)
    below = set(limits)
    assert set(setup.tree.children[error.agent]) <= below and error.agent not in below
    assert set(limits.values()) == {4}
    with pytest.raises(ResourceError, match="no room"):
        narrowed(setup.tree, limits, error)
    error.z = 3
    assert set(narrowed(setup.tree, limits, error).values()) == {3}


def test_a_combination_may_be_asked_for_with_larger_tables_than_the_time_allows():
    run = begun(many_small_agents(), stop=Stop(time.perf_counter() + 600), budget={"time": 0.02})
    run.first_tables()
    tables = {number: agent.exported() for number, agent in run.agents.items()}
    bounds, widths = [], []
    for larger in (1.0, 1e3, 1e6):
        cycle = run_cycle(run.setup, run.post, dict(run.clocks), tables, run.sides, NO_STOP, larger)
        bounds.append(sum(cycle.roots.values()))
        widths.append(max(step.upper.elimination.plan.width for step in cycle.steps.values()))
    assert widths == sorted(widths) and widths[0] < widths[-1] and bounds[0] > bounds[-1]
    assert attempts_of(run.setup, 1e9)[-1] == attempts_of(run.setup)[-1]  # the memory stays the limit
