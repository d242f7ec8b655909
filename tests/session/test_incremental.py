"""After changes of tables alone, only agents between a change and the root work; the answer is that of a new run."""

import itertools
import json

import numpy as np
import pytest
from support.ranks import needs_mpirun, start

import dmcmc


def tree_of_agents(seed, agents=6, kind="int"):
    """Return a random tree of agents with a shared and a hidden variable each, and some forbidden entries."""
    rng, builder = np.random.default_rng(seed), dmcmc.Problem.build()
    for a in range(agents):
        builder.variable(f"s{a}", 2, agent=f"a{a}")
        builder.variable(f"h{a}", 2, agent=f"a{a}")
        builder.factor((f"s{a}", f"h{a}"), random_table(rng, kind), name=f"own{a}")
        if a:
            builder.factor((f"s{a}", f"s{rng.integers(a)}"), random_table(rng, kind), name=f"link{a}")
    return builder.factor((), 7).problem()


def random_table(rng, kind, forbidden=0.15):
    table = rng.integers(0, 30, (2, 2)) if kind == "int" else rng.random((2, 2))
    return np.where(rng.random((2, 2)) < forbidden, -np.inf, table)


def optimum(problem):
    found = [problem.evaluate(list(values)) for values in itertools.product(range(2), repeat=problem.n_variables)]
    return max((one.objective for one in found if one.violation == 0), default=None)


@pytest.mark.parametrize("kind", ["int", "float"])
@pytest.mark.parametrize("seed", range(6))
def test_after_every_sequence_of_new_tables_the_answer_is_the_proven_optimum(seed, kind):
    rng, session = np.random.default_rng(seed), dmcmc.Session(tree_of_agents(seed, kind=kind))
    session.solve()
    for _ in range(6):
        with session.changes() as changes:
            for position in rng.choice(len(session.problem.factors) - 1, rng.integers(1, 4), replace=False):
                changes.set_table(int(position), random_table(rng, kind))
        result, best = session.solve(), optimum(session.problem)
        if best is None:
            assert (result.status, result.assignment) == ("infeasible", None)
        else:
            assert result.status == "optimal" and result.objective == pytest.approx(best, abs=1e-12)
            assert session.problem.evaluate(dict(result.assignment)).objective == result.objective


def test_only_agents_on_the_path_to_the_root_work_and_send_messages():
    builder = dmcmc.Problem.build()
    for a in range(9):  # a chain, whose root is in the middle
        builder.variable(f"x{a}", 3, agent=f"a{a}")
        builder.variable(f"y{a}", 3, agent=f"a{a}")
        builder.factor((f"x{a}", f"y{a}"), np.arange(9).reshape(3, 3), name=f"own{a}")
    for a in range(8):
        builder.factor((f"x{a}", f"x{a + 1}"), np.zeros((3, 3), dtype=int))
    session = dmcmc.Session(builder)
    first = session.solve()
    assert first.msg_count == 2 * 8
    session.set_table("own0", np.arange(9).reshape(3, 3) + 1)  # another utility, and the same values everywhere
    result = session.solve()
    busy = [agent.name for agent in result.agents if agent.msg_count]
    assert result.objective == first.objective + 1 and len(session.result.agents) == 9
    assert session.reused.tables == 8 and session.reused.messages == 9 - len({*busy, "a0"})
    assert result.messages["UTIL"].count == len({*busy, "a0"}) - 1  # all on the path but the root send one
    assert result.msg_count < first.msg_count
    assert [agent.name for agent in result.agents if agent.cells] == ["a0"]
    unchanged = session.solve()
    assert (unchanged.msg_count, unchanged.objective) == (0, result.objective) and session.reused == (9, 9, 0)


def test_numbers_that_need_another_type_are_solved_anew():
    session = dmcmc.Session(tree_of_agents(3))
    session.solve()
    session.set_table("own0", [[2**40, 0], [0, 5]])
    result = session.solve()
    assert result.objective == optimum(session.problem) and session.reused.messages < 6
    session.set_table("own0", [[0.5, 0], [0, 5]])
    assert session.solve().objective == optimum(session.problem)


PROGRAM = """
import json, sys
import numpy as np
import dmcmc
from dmcmc.mpi.world import connect
from session.test_incremental import random_table, tree_of_agents

world, found = connect(), []
for seed in range(3):
    sessions = [dmcmc.Session(tree_of_agents(seed, 7), world=w) for w in (world, None)]
    rng = np.random.default_rng(seed)
    for number in range(6):
        if number:
            position, table = int(rng.integers(13)), random_table(rng, "int")
            if number == 4:
                for session in sessions:
                    session.remove_agent("a6")
            else:
                for session in sessions:
                    session.set_table(position % len(session.problem.factors[:-1]), table)
        ours, alone = (session.solve() for session in sessions)
        keys = "status", "objective", "bound", "assignment", "msg_count", "msg_size"
        same = [getattr(ours, key) == getattr(alone, key) for key in keys]
        found.append([all(same), sessions[0].reused == sessions[1].reused, ours.msg_count])
print(json.dumps(world.gather(found)) if world.rank == 0 else world.gather(found) or "")
"""


@needs_mpirun
def test_on_ranks_the_answers_and_messages_are_those_of_one_process():
    ended = start(2, "-c", PROGRAM)
    assert ended.returncode == 0, ended.stderr
    first, second = json.loads(ended.stdout.strip())
    assert first == second and all(same and reused for same, reused, _ in first)
    assert min(count for _, _, count in first) < 12 == max(count for _, _, count in first)
