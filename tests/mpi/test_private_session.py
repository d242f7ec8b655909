"""A session on private inputs: answers are those of one file, unchanged agents' work is kept, no factor is sent."""

import json

import numpy as np
import pytest
from support.random_trees import optimum, random_table, tree_of_agents
from support.ranks import needs_mpirun, start

import dmcmc
from dmcmc.formats import agent_files, native
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.session.changes import Changes

SMALLEST, LARGEST = 10**12, 2**43  # private utilities, which can be recognised in any data


def secret_problem(agents=4):
    """Return a ring of agents with a shared and two private variables each, so that no message has a single entry."""
    rng, builder = np.random.default_rng(3), dmcmc.Problem.build()
    for a in range(agents):
        builder.variable(f"shared{a}", 3, agent=f"a{a}")
        builder.variable(f"secret{a}", 5, agent=f"a{a}")
        builder.variable(f"secret-too{a}", 4, agent=f"a{a}")
        builder.factor((f"shared{a}", f"secret{a}"), rng.integers(SMALLEST, LARGEST, (3, 5)), name=f"own{a}")
        builder.factor((f"secret{a}", f"secret-too{a}"), rng.integers(SMALLEST, LARGEST, (5, 4)), name=f"inner{a}")
    for a in range(agents):
        builder.factor((f"shared{a}", f"shared{(a + 1) % agents}"), rng.integers(0, 10**12, (3, 3)), name=f"link{a}")
    return builder.problem()


@pytest.fixture
def folder(tmp_path):
    agent_files.write(secret_problem(), tmp_path / "parts", 1 << 30)
    native.save(secret_problem(), tmp_path / "whole.npz")
    return tmp_path / "parts"


def test_after_each_change_the_answer_is_that_of_the_changed_problem(folder):
    session, whole = dmcmc.PrivateSession(folder, share_assignment=True), dmcmc.Session(secret_problem())
    rng = np.random.default_rng(5)
    for number in range(4):
        result, expected = session.solve(), whole.solve()
        assert (result.status, result.objective, result.bound) == ("optimal", expected.objective, expected.objective)
        assert whole.problem.evaluate(dict(result.assignment)).objective == expected.objective
        assert session.assignment == result.assignment
        assert number == 0 or session.reused.tables == 3
        agent, table = f"a{number}", rng.integers(SMALLEST, LARGEST, (3, 5))
        session.set_table(agent, f"own{number}", table)
        whole.set_table(f"own{number}", table)


@pytest.mark.parametrize("kind", ["int", "float"])
@pytest.mark.parametrize("seed", range(3))
def test_after_every_sequence_of_new_tables_the_answer_is_the_proven_optimum(tmp_path, seed, kind):
    problem, rng = tree_of_agents(seed, kind=kind), np.random.default_rng(seed)
    agent_files.write(problem, tmp_path, 1 << 30)
    session, whole = dmcmc.PrivateSession(tmp_path, share_assignment=True), Changes(problem)
    session.solve()
    continued = 0
    for _ in range(12):
        for agent in rng.choice(6, rng.integers(1, 3), replace=False).tolist():
            table = random_table(rng, kind)
            session.set_table(f"a{agent}", f"own{agent}", table)
            whole.set_table(f"own{agent}", table)
        result, best = session.solve(), optimum(whole.problem())
        continued += session.reused.messages > 0
        if best is None:
            assert (result.status, result.assignment) == ("infeasible", None)
        else:
            assert result.status == "optimal" and result.objective == pytest.approx(best, abs=1e-12)
            assert whole.problem().evaluate(dict(result.assignment)).objective == result.objective
            assert session.assignment == result.assignment
    assert continued > 3


def test_only_agents_on_the_path_to_the_root_work_and_send_messages(tmp_path):
    problem = tree_of_agents(1, 12)
    agent_files.write(problem, tmp_path, 1 << 30)
    session = dmcmc.PrivateSession(tmp_path, share_assignment=True)
    first = session.solve()
    parent = first.provenance["plan"]["pseudo_tree"]
    for agent in ("a3", "a11", "a0"):
        part, number = session.problems[agent], int(agent[1:])
        table = part.factors[0].table
        session.set_table(agent, f"own{number}", np.where(table < -(2**30), -np.inf, table + 1))
        result, path = session.solve(), [agent]
        while parent[path[-1]] is not None:
            path.append(parent[path[-1]])
        assert session.reused == (11, 12 - len(path), 0)
        assert {a.name for a in result.agents if "UTIL" in a.messages} == set(path[:-1])
        assert {a.name for a in result.agents if a.disclosed} <= set(path[:-1])
        assert [a.name for a in result.agents if a.cells] == [agent] and len(result.agents) == 12
    assert result.objective == first.objective + 3 and result.assignment == first.assignment
    assert session.solve().msg_count == 0 and session.reused == (12, 12, 0)


def test_rows_that_the_children_have_left_out_are_sent_when_they_are_allowed(tmp_path):
    """With private inputs messages leave out forbidden rows (``combine.rows: usable``)."""
    builder = dmcmc.Problem.build()
    for a in range(3):
        builder.variable(f"s{a}", 40, agent=f"a{a}")
        builder.variable(f"h{a}", 2, agent=f"a{a}")
    closed, prices = np.full((40, 2), -np.inf), np.arange(40)[:, None] + np.zeros((1, 2))
    closed[:3] = prices[:3]
    for a in range(3):
        builder.factor((f"s{a}", f"h{a}"), closed if a == 1 else prices, name=f"own{a}")
    for a in (0, 2):
        builder.factor((f"s{a}", "s1"), np.where(np.eye(40), 0, -np.inf))
    agent_files.write(builder.problem(), tmp_path, 1 << 30)
    session = dmcmc.PrivateSession(tmp_path, share_assignment=True)
    assert session.solve().objective == 3 * 2
    session.set_table("a1", "own1", prices)
    assert session.solve().objective == 3 * 39
    closed[2] = -np.inf
    session.set_table("a1", "own1", closed)
    assert session.solve().objective == 3 * 1


def test_each_rank_writes_its_values_after_each_change(folder, tmp_path):
    session = dmcmc.PrivateSession(folder, output=str(tmp_path / "out.json"))
    session.solve()
    session.set_table("a2", "own2", np.full((3, 5), LARGEST) - SMALLEST * np.eye(3, 5, dtype=np.int64))
    session.solve()
    files = sorted((tmp_path / "out.agents").iterdir())
    written = [json.loads(path.read_text())["assignment"] for path in files]
    assert {name: value for part in written for name, value in part.items()} == dict(session.assignment)


def test_with_a_time_budget_the_last_assignment_is_the_start(folder):
    session = dmcmc.PrivateSession(folder, share_assignment=True)
    first = session.solve()
    assert session.solve(timeout=300).objective == first.objective


def test_tables_of_other_agents_and_shared_ones_cannot_be_changed(folder):
    session = dmcmc.PrivateSession(folder)
    before = dict(session.problems)
    for agent, factor, message in (("b", 0, "agent 'b' is not on this rank"), ("a1", "link0", "is shared with other")):
        with pytest.raises(DmcmcError, match=message):
            session.set_table(agent, factor, np.zeros((3, 3)))
    assert session.problems == before
    with pytest.raises(DmcmcError, match="stay: is not possible in a session with private inputs"):
        dmcmc.PrivateSession(folder, start=str(folder), stay={"weight": 1})


RECORDED = f"""
import json, pickle, sys
import numpy as np
import dmcmc
from dmcmc.formats import native
from dmcmc.mpi.wire_format import KINDS
from dmcmc.mpi.world import connect

world, sent, answers, util = connect(), [], [], 0


class Recorder:
    def __init__(self, comm):
        self.comm = comm

    def __getattr__(self, name):
        method = getattr(self.comm, name)

        def called(*arguments, **named):
            global util
            util += name == "Isend" and named["tag"] == 2 * KINDS.index("UTIL")
            answer = method(*arguments, **named)
            for argument in arguments:
                sent.append(bytes(argument) if isinstance(argument, np.ndarray) else pickle.dumps(argument))
            return Recorder(answer) if name == "Split" else answer

        return called


comm, world.comm = world.comm, Recorder(world.comm)
whole, session = native.load(sys.argv[2]), dmcmc.PrivateSession(sys.argv[1], world=world)
secrets = [entry for factor in whole.factors for entry in factor.table.ravel().tolist() if entry >= {SMALLEST}]
known = dmcmc.Session(whole)
for number in range(4):
    for timeout in (None, 300):
        util, result = 0, session.solve(timeout)
        between_ranks = sum(world.allgather(util))
        if result is not None:
            kinds = {{kind: messages.count for kind, messages in result.messages.items()}}
            answer = result.status, result.objective, known.solve().objective
            answers.append([answer, kinds, session.reused, between_ranks])
    table = np.random.default_rng(number).integers({SMALLEST}, {LARGEST}, (3, 5))
    secrets += table.ravel().tolist()
    agent, factor = f"a{{number}}", f"own{{number}}"
    if agent in session.problems:
        session.set_table(agent, factor, table)
    known.set_table(factor, table)
traffic = b"|".join(sent)
leaks = sum(int(entry).to_bytes(6, "little") in traffic for entry in secrets)
names = sum(f"secret{{a}}".encode() in traffic for a in range(4))
found = comm.gather((leaks, names, len(sent), len(secrets), sorted(session.problems)))
if world.rank == 0:
    print(json.dumps([answers, found]))
"""


@needs_mpirun
@pytest.mark.parametrize("ranks", [2, 3])
def test_no_factor_leaves_its_rank_before_and_after_changes(folder, ranks):
    done = start(ranks, "-c", RECORDED, str(folder), str(folder.with_name("whole.npz")))
    assert done.returncode == 0, done.stderr
    answers, found = json.loads(done.stdout)
    assert len(answers) == 8 and all(status == "optimal" and one == other for (status, one, other), *_ in answers)
    for number, (_, kinds, (tables, messages, _), between_ranks) in enumerate(answers):
        assert between_ranks <= kinds.get("UTIL", 0)
        if number and number % 2 == 0:  # one agent has changed: all on the path but the root send a message
            assert tables == 3 and kinds.get("UTIL", 0) == 3 - messages
        elif number:  # nothing has changed since the last run
            assert (kinds, tables, messages, between_ranks) == ({}, 4, 4, 0)
    assert all((leaks, names) == (0, 0) and sent > 20 and secrets > 100 for leaks, names, sent, secrets, _ in found)
    assert sorted(agent for *_, agents in found for agent in agents) == ["a0", "a1", "a2", "a3"]
