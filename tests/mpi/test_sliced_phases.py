"""Variables worked off value by value: the same answer, to the bit, in less memory; requests, failures, estimates."""

from dataclasses import replace

import numpy as np
import pytest
from support.problem_strategies import random_table
from support.runs import begun

from dmcmc import Factor, Problem
from dmcmc.inference.dpop import step_workspace
from dmcmc.inference.dpop.slicing import restricted
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.report.plan import plan_of
from dmcmc.run import agent_steps
from dmcmc.run.planning.combination_plan import slicing_of, slicing_seconds


def clique(agents, values=3, most=4, seed=0):
    """Every two agents share a factor of few different entries, so that there are many ties."""
    rng = np.random.default_rng(seed)
    scopes = [(u, v) for u in range(agents) for v in range(u)]
    return Problem(
        variables=tuple(f"x{v}" for v in range(agents)),
        domains=np.full(agents, values),
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=np.arange(agents),
        factors=tuple(Factor.of(s, rng.integers(0, most, (values, values))) for s in scopes),
    )


def wide(seed, hard=0.1):
    """Two or three variables an agent, factors of few different entries between any of them, some forbidden."""
    rng = np.random.default_rng(seed)
    owner = np.sort(np.concatenate([np.arange(6), np.arange(6), rng.integers(0, 6, 2)]))
    domains = rng.integers(2, 4, owner.size)
    scopes = [(u, v) for u in range(owner.size) for v in range(u) if rng.random() < 0.4]
    scopes += [tuple(rng.permutation(owner.size)[:3].tolist()) for _ in range(3)]
    tables = [random_table(rng, tuple(domains[list(scope)]), 3, hard) for scope in scopes]
    names = tuple(f"x{v}" for v in range(owner.size)), tuple(f"a{a}" for a in range(6))
    return Problem(names[0], domains, names[1], owner, tuple(map(Factor.of, scopes, tables)))


def in_slices(entries):
    """Make a setup whose steps have room for so many entries, by slices."""

    def change(setup):
        own = {
            local.agent: work.left_over(local.interface) if choice.method == "exact" else (local.interface,)
            for local, work, choice in zip(setup.division.locals, setup.surveys, setup.choices, strict=True)
        }
        slicing = slicing_of(setup, setup.tree, own, setup.problem.domains, entries)
        return replace(setup, slicing=slicing, room=entries * setup.arithmetic.dtype.itemsize)

    return change


def combined(problem, change=None, **local):
    """What one combination of the first tables comes to, before anything improves it, and the run."""
    how = {} if change is None else {"change": change, "combine": {"method": "sliced"}}
    run = begun(problem, local={"runs": 1, "samples": 2} | local, reduce="none", **how)
    run.first_tables()
    return run.combine(), run


def decided(cycle):
    return cycle.values, cycle.chosen, cycle.contexts, cycle.roots


@pytest.mark.parametrize("method", ["exact", "gibbs"])
@pytest.mark.parametrize("problem", [clique(7), clique(8, 2), wide(1), wide(2), wide(3, 0.2)], ids=range(5))
def test_slices_have_the_answer_of_whole_tables_to_the_bit(problem, method):
    whole, _ = combined(problem, method=method)
    cut = 0
    for entries in (60, 200, 1000):
        found, run = combined(problem, in_slices(entries), method=method)
        cut += len(run.setup.slicing.cut)
        assert decided(found) == decided(whole)
        assert max(step.lower.elimination.plan.entries for step in found.steps.values()) <= entries
    assert cut > 0


def test_tables_that_nothing_is_cut_in_are_sent_once():
    problem = clique(7)
    cycle, run = combined(problem, in_slices(150), method="exact")
    slicing, sent = run.setup.slicing, cycle.sent
    kinds = {next(iter(phase.values())).kind: sum(s.count for s in phase.values()) for phase in sent}
    assert kinds["REQUEST"] == kinds["UTIL"] and kinds["VALUE"] == 6
    assert slicing.largest <= 150 < slicing.whole
    assert slicing.steps >= 3 ** len(slicing.cut) and slicing.cells >= 3**7


def test_steps_of_one_shape_are_planned_once_and_their_messages_lie_where_they_are_joined(monkeypatch):
    planned, steps, shared = [], [], []

    def listening(place, name, heard):
        before = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *given: heard.append(before(*given)) or heard[-1])

    listening(agent_steps, "util_step", planned)
    listening(step_workspace.StepRoom, "step", steps)
    listening(step_workspace, "_same", shared)
    found, _ = combined(clique(8), in_slices(60), method="exact")
    assert len(planned) <= 3 * 8 < len(steps) and sum(shared) > len(steps) // 4
    assert decided(found) == decided(combined(clique(8), method="exact")[0])


def test_a_step_that_fails_ends_all_of_them(monkeypatch):
    def fail(*given, **named):
        raise ResourceError("no room on purpose")

    run = begun(clique(6), local={"method": "exact"}, combine={"method": "sliced"}, change=in_slices(60))
    run.first_tables()
    monkeypatch.setattr(agent_steps, "util_step", fail)
    with pytest.raises(ResourceError, match="on purpose"):
        run.combine()
    monkeypatch.undo()
    assert run.agree(run.combine()).stop


def test_what_no_slice_fits_is_refused():
    with pytest.raises(ResourceError, match="no slice"):
        in_slices(2)(begun(clique(4), combine={"method": "sliced"}).setup)


def test_restricted_tables_keep_their_axes():
    table = Table((3, 5, 7), np.arange(24).reshape(2, 3, 4))
    (found,) = restricted([table], {5: 2, 7: 1})
    assert found.scope == table.scope and np.array_equal(found.values, table.values[:, 2:3, 1:2])
    assert np.array_equal(restricted([found], {5: 2, 3: 1})[0].values, table.values[1:2, 2:3, 1:2])


def test_without_being_asked_slices_are_taken_where_they_are_few_and_agents_too():
    problem, memory = clique(9, 4), {"memory": 1 << 18}
    setup = begun(problem, budget=memory).setup
    assert setup.slicing is not None and "in slices" in plan_of(setup).combine
    assert slicing_seconds(setup) > 0 and setup.slicing.largest * 4 <= setup.room
    assert begun(problem, budget=memory | {"time": 1e-6}).setup.slicing is None  # too much for the time
    assert begun(problem, budget=memory, combine={"method": "mini-bucket"}).setup.slicing is None
    assert begun(problem, budget=memory, combine={"z": 3}).setup.slicing is None
