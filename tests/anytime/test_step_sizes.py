"""UTIL tables use the memory that there is; if a parent has too little, its children send narrower messages."""

import json
import time

import numpy as np
import pytest
from support.ranks import needs_mpirun, start
from support.runs import solve_with, start_run

from dmcmc import Factor, Problem
from dmcmc.formats import native
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.solving.planning.combination_plan import MessagesTooWide, narrowed_limits, step_attempts

LITTLE_MEMORY = {"memory": 1 << 18}

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
    """Return agents of two variables with factors between any of them, so that messages are wide."""
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for b in range(variables) for a in range(b) if rng.random() < 0.3]
    factors = tuple(Factor.of(pair, rng.integers(0, 100, (2, 2))) for pair in pairs)
    names = tuple(f"x{v}" for v in range(variables)), tuple(f"a{a}" for a in range(agents))
    return Problem(names[0], np.full(variables, 2), names[1], np.arange(variables) * agents // variables, factors)


def bounds_and_z(result):
    return result["objective"], result["bound"], [agent["z"] for agent in result["agents"]]


@needs_mpirun
def test_messages_too_wide_for_a_parent_are_made_again_with_a_smaller_z(tmp_path):
    problem = many_small_agents()
    alone = solve_with(problem, budget=LITTLE_MEMORY)
    assert alone.status == "feasible" and alone.objective < alone.bound
    tree = alone.provenance["plan"]["pseudo_tree"]
    assert alone.msg_count > 2 * sum(parent is not None for parent in tree.values())  # some messages were sent twice
    native.save(problem, tmp_path / "problem.npz")
    (tmp_path / "solve.py").write_text(SOLVE)
    done = start(2, str(tmp_path / "solve.py"), str(tmp_path / "problem.npz"))
    assert done.returncode == 0, done.stderr
    assert bounds_and_z(json.loads(done.stdout)) == bounds_and_z(json.loads(alone.to_json()))


def test_an_error_is_raised_if_narrower_messages_do_not_help():
    setup = start_run(many_small_agents()).setup
    error = MessagesTooWide("out of memory")
    error.agent = next(a for a, children in enumerate(setup.tree.children) if children)
    error.z = 4
    limits = narrowed_limits(setup.tree, {}, error)
    narrowed_agents = set(limits)
    assert set(setup.tree.children[error.agent]) <= narrowed_agents and error.agent not in narrowed_agents
    assert set(limits.values()) == {4}
    with pytest.raises(ResourceError, match="out of memory"):
        narrowed_limits(setup.tree, limits, error)
    error.z = 3
    assert set(narrowed_limits(setup.tree, limits, error).values()) == {3}


def test_larger_tables_than_the_time_allows_tighten_the_bounds():
    run = start_run(many_small_agents(), stop=Deadline(time.perf_counter() + 600), budget={"time": 0.02})
    run.first_tables()
    bounds, widths = [], []
    for larger in (1.0, 1e3, 1e6):
        cycle = run.tables.combine(NO_DEADLINE, larger)
        bounds.append(sum(cycle.roots.values()))
        widths.append(max(step.upper.elimination.plan.width for step in cycle.steps.values()))
    assert widths == sorted(widths) and widths[0] < widths[-1] and bounds[0] > bounds[-1]
    assert step_attempts(run.setup, 1e9)[-1] == step_attempts(run.setup)[-1]  # the memory limit still holds
