"""Messages without unusable rows between ranks: the same answer and bytes on any number of ranks."""

import itertools
import json

import numpy as np
import pytest
from support.ranks import needs_mpirun, start

import dmcmc
from dmcmc.formats import agent_files, native

pytest.importorskip("mpi4py")

INFINITY = float("inf")

SOLVE = """
import json, sys
import dmcmc
from dmcmc.files.document import Document
from dmcmc.config.make_settings import settings_of
from dmcmc.mpi.world import World, connect
from dmcmc.anytime.solve_private import solve_directory

def solved(world):
    found = {}
    for rows in ("all", "usable"):
        combine, folder, file = {"rows": rows}, *sys.argv[1:]
        config = settings_of(Document("", {"device": "cpu", "combine": combine}))
        one_file = dmcmc.solve_on(world, dmcmc.load(file), device="cpu", presolve="none", combine=combine)
        private = solve_directory(folder, config, world)
        for way, result in (("one file", one_file), ("private", private)):
            if world.rank == 0:
                sent = [[agent.name, agent.disclosed, agent.msg_size] for agent in result.agents]
                kinds = sorted({kind for agent in result.agents for kind in agent.messages})
                found[f"{way} {rows}"] = [result.status, result.objective, result.bound, sent, kinds]
    return found

world = connect()
together, alone = solved(world), solved(World()) if world.rank == 0 else None
if world.rank == 0:
    print(json.dumps([together, alone]))
"""


def copies(people, meetings, slots, seed):
    """Return people of whom each has a copy of every meeting: equal copies, unlike slots, random costs."""
    rng, build = np.random.default_rng(seed), dmcmc.Problem.build(sense="min")
    for person, meeting in itertools.product(range(people), range(meetings)):
        build.variable(f"{person}.{meeting}", slots, agent=f"person {person}")
        build.factor([f"{person}.{meeting}"], rng.integers(0, 9, slots))
    for meeting, person in itertools.product(range(meetings), range(1, people)):
        build.factor([f"0.{meeting}", f"{person}.{meeting}"], np.where(np.eye(slots, dtype=bool), 0.0, INFINITY))
    for one, two in itertools.combinations(range(meetings), 2):
        for person in range(people):
            build.factor([f"{person}.{one}", f"{person}.{two}"], np.where(np.eye(slots, dtype=bool), INFINITY, 0.0))
    return build.problem()


@needs_mpirun
def test_the_answer_and_the_bytes_do_not_depend_on_the_ranks(tmp_path):
    problem = copies(3, 3, 6, seed=1)
    agent_files.write(problem, tmp_path / "parts", 1 << 30)
    native.save(problem, tmp_path / "p.npz")
    found = []
    for ranks in (2, 3):
        done = start(ranks, "-c", SOLVE, str(tmp_path / "parts"), str(tmp_path / "p.npz"))
        assert done.returncode == 0, done.stderr
        found += json.loads(done.stdout)
    assert found[0] == found[1] == found[2] == found[3]
    for way in ("one file", "private"):
        everything, usable = (found[0][f"{way} {rows}"] for rows in ("all", "usable"))
        assert everything[:3] == usable[:3] and everything[0] == "optimal"
        assert "USABLE" in usable[4] and "USABLE" not in everything[4]
        assert sum(size for *_, size in usable[3]) < sum(size for *_, size in everything[3]) / 2
