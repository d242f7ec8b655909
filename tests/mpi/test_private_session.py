"""A session on private inputs: answers are those of one file, unchanged agents' work is kept, no factor is sent."""

import json

import numpy as np
import pytest
from support.ranks import needs_mpirun, start

import dmcmc
from dmcmc.formats import agent_files, native
from dmcmc.inference.runtime.errors import DmcmcError

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
from dmcmc.mpi.world import connect

world, sent, answers = connect(), [], []


class Recorder:
    def __init__(self, comm):
        self.comm = comm

    def __getattr__(self, name):
        method = getattr(self.comm, name)

        def called(*arguments, **named):
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
        result = session.solve(timeout)
        if result is not None:
            answers.append((result.status, result.objective, known.solve().objective))
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
    assert len(answers) == 8 and all(status == "optimal" and one == other for status, one, other in answers)
    assert all((leaks, names) == (0, 0) and sent > 20 and secrets > 100 for leaks, names, sent, secrets, _ in found)
    assert sorted(agent for *_, agents in found for agent in agents) == ["a0", "a1", "a2", "a3"]
