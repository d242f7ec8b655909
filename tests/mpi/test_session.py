"""Ranks of a session stay together: refused changes are errors on all ranks, and nobody waits for a rank that ended."""

import json

from support.ranks import needs_mpirun, start

REFUSED = """
import json, sys
import dmcmc
from dmcmc.mpi.world import connect

builder = dmcmc.Problem.build(sense="max")
builder.variable("x", 2, agent="ann")
builder.variable("y", 2, agent="bob")
builder.factor(("x", "y"), [[1, 2], [3, 4]], name="both")
builder.factor(("x",), [5, 0], name="taste")
world = connect()
session, found = dmcmc.Session(builder.problem(), world=world), []

def change(table):
    try:
        session.set_table("taste", table)
    except dmcmc.DmcmcError as error:
        return str(error)

def solve():
    try:
        found.append(session.solve().objective)
    except dmcmc.DmcmcError as error:
        found.append(str(error))

solve()
change([0, 9] if world.rank == 0 else [1, 2, 3])  # rank 1 refuses what rank 0 does
solve()
solve()
change([1, 2, 3])  # all ranks refuse
change([0, 9])
solve()
found = world.gather(found)
if world.rank == 0:
    print(json.dumps(found), flush=True)
"""
ENDS = """
if world.rank == 1:
    sys.exit(0)
try:
    session.solve()
except dmcmc.DmcmcError as error:
    print(error)
try:
    session.solve()
except dmcmc.DmcmcError as error:
    print(error)
"""


@needs_mpirun
def test_a_change_that_one_rank_refuses_is_an_error_on_all_and_is_undone():
    ended = start(2, "-c", REFUSED)
    assert ended.returncode == 0, ended.stderr
    first, second = json.loads(ended.stdout)
    assert first == second
    assert first[1].startswith("rank 1 refused what other ranks changed or refused otherwise: ") and "taste" in first[1]
    assert (first[0], first[2], first[3]) == (7, 7, 13)


@needs_mpirun
def test_no_rank_waits_for_one_that_has_ended():
    ended = start(2, "-c", REFUSED + ENDS)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[1:] == ["rank 1 has ended; a session needs all ranks"] * 2
