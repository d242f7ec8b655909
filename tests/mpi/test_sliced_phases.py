"""Variables fixed to one value at a time: a bitwise equal answer in less memory; requests, failures, estimates."""

from dataclasses import replace

import numpy as np
import pytest
from support.problem_strategies import random_table
from support.ranks import needs_mpirun, start
from support.runs import start_run

from dmcmc import Factor, Problem
from dmcmc.inference.dpop import agent_step
from dmcmc.inference.dpop import slicing as step_workspace
from dmcmc.inference.dpop.slicing import condition_tables
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.mpi.divided_phases import is_faster_divided
from dmcmc.report.explain import plan_of
from dmcmc.solving.planning.combination_plan import find_slicing, slicing_seconds


def clique(agents, values=3, largest_entry=4, seed=0):
    """Return a problem in which every two agents share a factor of few distinct entries, with many ties."""
    rng = np.random.default_rng(seed)
    scopes = [(u, v) for u in range(agents) for v in range(u)]
    return Problem(
        variables=tuple(f"x{v}" for v in range(agents)),
        domains=np.full(agents, values),
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=np.arange(agents),
        factors=tuple(Factor.of(s, rng.integers(0, largest_entry, (values, values))) for s in scopes),
    )


def several_variables_per_agent(seed, hard=0.1):
    """Return a problem with two or three variables per agent, with factors of few distinct entries, some forbidden."""
    rng = np.random.default_rng(seed)
    owner = np.sort(np.concatenate([np.arange(6), np.arange(6), rng.integers(0, 6, 2)]))
    domains = rng.integers(2, 4, owner.size)
    scopes = [(u, v) for u in range(owner.size) for v in range(u) if rng.random() < 0.4]
    scopes += [tuple(rng.permutation(owner.size)[:3].tolist()) for _ in range(3)]
    tables = [random_table(rng, tuple(domains[list(scope)]), 3, hard) for scope in scopes]
    names = tuple(f"x{v}" for v in range(owner.size)), tuple(f"a{a}" for a in range(6))
    return Problem(names[0], domains, names[1], owner, tuple(map(Factor.of, scopes, tables)))


def separate_agents(agents):
    """Return a problem in which no two agents share a factor."""
    factors = tuple(Factor.of((v,), [0, 1]) for v in range(agents))
    names = tuple(f"x{v}" for v in range(agents)), tuple(f"a{a}" for a in range(agents))
    return Problem(names[0], np.full(agents, 2), names[1], np.arange(agents), factors)


def in_slices(entries):
    """Return a function that limits a setup's steps to a number of table entries, by slices."""

    def change(setup):
        scopes = {
            local.agent: work.remaining_tables(local.interface) if choice.method == "exact" else (local.interface,)
            for local, work, choice in zip(setup.divided.division.locals, setup.surveys, setup.choices, strict=True)
        }
        slicing = find_slicing(setup.divided, setup.tree, scopes, setup.divided.problem.domains, entries)
        return replace(setup, slicing=slicing, step_bytes=entries * setup.divided.arithmetic.dtype.itemsize)

    return change


def combined(problem, change=None, world=None, **local):
    """Return the result of combining the first tables, before any improvement, and the run."""
    options = {} if change is None else {"change": change, "combine": {"method": "sliced"}}
    run = start_run(problem, world=world, local={"runs": 1, "samples": 2} | local, presolve="none", **options)
    run.first_tables()
    return run.combine(), run


def decided(cycle):
    return cycle.values, cycle.chosen, cycle.contexts, cycle.roots


@pytest.mark.parametrize("method", ["exact", "gibbs"])
@pytest.mark.parametrize(
    "problem",
    [
        clique(7),
        clique(8, 2),
        several_variables_per_agent(1),
        several_variables_per_agent(2),
        several_variables_per_agent(3, 0.2),
    ],
    ids=range(5),
)
def test_slices_give_the_answer_of_whole_tables_bitwise(problem, method):
    whole, _ = combined(problem, method=method)
    cut = 0
    for entries in (60, 200, 1000):
        found, run = combined(problem, in_slices(entries), method=method)
        cut += len(run.setup.slicing.cut)
        assert decided(found) == decided(whole)
        assert max(step.lower.elimination.plan.entries for step in found.steps.values()) <= entries
    assert cut > 0


DIVIDE = """
import runpy, sys
from functools import partial
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.mpi.world import World, connect
from dmcmc.inference.dpop import agent_step
from dmcmc.solving import combine_tables

tests, world = runpy.run_path(sys.argv[1]), connect()
clique, several, combined = (tests[name] for name in ("clique", "several_variables_per_agent", "combined"))
divided = []
combine_tables.is_faster_divided = lambda *arguments: True
before = combine_tables.combine_slices
combine_tables.combine_slices = lambda *arguments: divided.append(arguments[-1]) or before(*arguments)

def facts(world, cycle, run):
    parts = [cycle.values, cycle.chosen, cycle.contexts, cycle.roots, *cycle.sent]
    return [dict(sorted(world.union(part).items())) for part in parts], max(
        clock.checks for clock in world.union(run.tables.clocks).values()
    )

problems = [clique(8, 2), several(2), tests["two_cliques"]()]
for problem in problems:
    for method, entries in (("exact", 60), ("gibbs", 120)):
        change = tests["in_slices"](entries)
        together = facts(world, *combined(problem, change, world, method=method))
        equal = world.rank > 0 or together == facts(World(), *combined(problem, change, method=method))
        assert world.bcast(equal), (problem.variables, method)
assert sum(divided) == 2 * len(problems)

calls, step = [0], agent_step.util_step
for failing in (1, 4):  # the first step on rank 1, and one of a share
    def fail(*arguments):
        calls[0] += 1
        if world.rank == 1 and calls[0] == failing:
            raise ResourceError("no memory on purpose")
        return step(*arguments)

    calls[0], agent_step.util_step = 0, fail
    try:
        combined(clique(8), tests["in_slices"](60), world, method="exact")
    except ResourceError as error:
        assert "on purpose" in str(error)
    else:
        raise AssertionError("no error")
print("done", flush=True)
"""


def two_cliques():
    """Return a problem of two components, the second with two agents at one parent and many values of ties."""
    one, other = clique(6), clique(5, 4, 2, 1)
    scopes = [tuple(v + 6 for v in factor.scope) for factor in other.factors if factor.scope != (4, 3)]
    tables = [factor.table for factor in other.factors if factor.scope != (4, 3)]
    return Problem(
        tuple(f"x{v}" for v in range(11)),
        np.concatenate([one.domains, other.domains]),
        tuple(f"a{a}" for a in range(11)),
        np.arange(11),
        (*one.factors, *map(Factor.of, scopes, tables)),
    )


@needs_mpirun
def test_ranks_that_divide_the_slices_give_the_answer_the_messages_and_the_checks_of_one_rank(tmp_path):
    ranks = 3  # of which one has no slices of a variable of two values
    (tmp_path / "divide.py").write_text(DIVIDE)
    done = start(ranks, str(tmp_path / "divide.py"), __file__)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == ranks


def test_slices_are_divided_if_that_is_estimated_to_be_faster():
    setup = start_run(clique(6), combine={"method": "sliced"}).setup
    root = setup.tree.bottom_up[-1]
    path, seconds = setup.tree, [1.0] * 6
    assert is_faster_divided(path, {root: 4}, seconds, (0, 0, 0, 1, 1, 1), 2)  # one agent works after the other
    assert not is_faster_divided(path, {root: 1}, seconds, (0, 0, 0, 1, 1, 1), 2)  # one slice
    forest = start_run(separate_agents(4)).setup
    assert not is_faster_divided(forest.tree, {}, [1.0] * 4, (0, 0, 1, 1), 2)  # no slices, and independent agents


def test_tables_without_cut_variables_are_sent_once():
    problem = clique(7)
    cycle, run = combined(problem, in_slices(150), method="exact")
    slicing, sent = run.setup.slicing, cycle.sent
    kinds = {next(iter(phase.values())).kind: sum(s.count for s in phase.values()) for phase in sent}
    assert kinds["REQUEST"] == kinds["UTIL"] and kinds["VALUE"] == 6
    assert slicing.largest <= 150 < slicing.largest_unsliced
    assert slicing.steps >= 3 ** len(slicing.cut) and slicing.cells >= 3**7


def test_steps_of_equal_shape_are_planned_once_and_share_memory_with_their_messages(monkeypatch):
    planned, steps, shared = [], [], []

    def record_results(owner, name, results):
        before = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *arguments: results.append(before(*arguments)) or results[-1])

    record_results(agent_step, "util_step", planned)
    record_results(step_workspace.StepWorkspace, "step", steps)
    record_results(step_workspace, "_same_memory", shared)
    found, _ = combined(clique(8), in_slices(60), method="exact")
    assert len(planned) <= 3 * 8 < len(steps) and sum(shared) > len(steps) // 4
    assert decided(found) == decided(combined(clique(8), method="exact")[0])


def test_a_failing_step_ends_all_steps(monkeypatch):
    def fail(*arguments, **keywords):
        raise ResourceError("no memory on purpose")

    run = start_run(clique(6), local={"method": "exact"}, combine={"method": "sliced"}, change=in_slices(60))
    run.first_tables()
    monkeypatch.setattr(agent_step, "util_step", fail)
    with pytest.raises(ResourceError, match="on purpose"):
        run.combine()
    monkeypatch.undo()
    assert run.agree(run.combine()).stop


def test_a_limit_below_every_slice_is_refused():
    with pytest.raises(ResourceError, match="no slice"):
        in_slices(2)(start_run(clique(4), combine={"method": "sliced"}).setup)


def test_restricted_tables_keep_their_axes():
    table = EncodedTable((3, 5, 7), np.arange(24).reshape(2, 3, 4))
    (found,) = condition_tables([table], {5: 2, 7: 1})
    assert found.scope == table.scope and np.array_equal(found.values, table.values[:, 2:3, 1:2])
    assert np.array_equal(condition_tables([found], {5: 2, 3: 1})[0].values, table.values[1:2, 2:3, 1:2])


def test_slices_are_chosen_automatically_if_they_are_few():
    problem, memory = clique(9, 4), {"memory": 1 << 18}
    setup = start_run(problem, budget=memory).setup
    assert setup.slicing is not None and "in slices" in plan_of(setup).combine
    assert slicing_seconds(setup) > 0 and setup.slicing.largest * 4 <= setup.step_bytes
    assert start_run(problem, budget=memory | {"time": 1e-6}).setup.slicing is None  # exceeds the time limit
    assert start_run(problem, budget=memory, combine={"method": "mini-bucket"}).setup.slicing is None
    assert start_run(problem, budget=memory, combine={"z": 3}).setup.slicing is None
