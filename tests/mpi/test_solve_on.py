"""The entry point for MPI programs."""

import json

from support.ranks import needs_mpirun, start

PROGRAM = """
import json, sys
from mpi4py import MPI
import dmcmc

problem = dmcmc.generate("random", agents=3, variables_per_agent=3, domain_size=2, seed=1)
trace = []
result = dmcmc.solve_on(MPI.COMM_WORLD, problem, seed=7, method="gibbs", output=sys.argv[1], trace=trace.append)
alone = dmcmc.solve(problem, seed=7, method="gibbs")
try:
    dmcmc.solve_on(MPI.COMM_WORLD, problem, output="/proc/run.json")
except dmcmc.DmcmcError as error:
    reported = str(error)
try:
    dmcmc.solve_on(MPI.COMM_WORLD, problem if MPI.COMM_WORLD.rank == 0 else None, local={"order": "o.txt"})
except dmcmc.DmcmcError as error:
    refused = str(error)
try:
    dmcmc.solve_on(MPI.COMM_WORLD, problem if MPI.COMM_WORLD.rank == 0 else None, algorithm="dsa")
except dmcmc.DmcmcError as error:
    refused += "; " + str(error)
mine = problem if MPI.COMM_WORLD.rank == 0 else None  # it sends each rank its own agents' parts
timed = dmcmc.solve_on(MPI.COMM_WORLD, mine, seed=7, method="gibbs", timeout=1, gap=1e-4)
scattered = ["deal" in timed.control, timed.objective, timed.bound, timed.assignment]
best = dmcmc.solve(problem).objective
right = problem.evaluate(timed.assignment).objective == timed.objective <= best <= timed.bound
same = (result.objective, result.bound, result.assignment) == (alone.objective, alone.bound, alone.assignment)
errors = [reported, refused]
report = [MPI.COMM_WORLD.rank, result.objective, result.assignment, same, len(trace), *errors, scattered, right]
print(json.dumps(MPI.COMM_WORLD.gather(report)) if MPI.COMM_WORLD.rank == 0 else MPI.COMM_WORLD.gather(report) or "")
"""


@needs_mpirun
def test_every_rank_receives_the_result_or_the_error_also_with_a_time_budget(tmp_path):
    output = tmp_path / "run.json"
    ended = start(2, "-c", PROGRAM, str(output))
    assert ended.returncode == 0, ended.stderr
    first, second = json.loads(ended.stdout.strip())
    assert (first[0], second[0]) == (0, 1) and first[1:4] == second[1:4] and first[3]
    assert first[4] == len(json.loads(output.read_text())["trace"]) > 0 and second[4] == 0
    assert first[5] == second[5] and first[5].startswith("/proc/run.json: cannot be written")
    assert first[6] == second[6] and first[6].startswith("only rank 0 has the problem, but local.order")
    assert first[6].endswith("; only rank 0 has the problem, but algorithm: dsa needs it on all ranks")
    assert first[7] == second[7] and first[7][0] and first[8] and second[8]


FILES_PROGRAM = """
import json, os, sys
from mpi4py import MPI
import dmcmc

rank, path = MPI.COMM_WORLD.rank, sys.argv[1]
found = dmcmc.solve_on(MPI.COMM_WORLD, path, seed=7)
report = [found.assignment == dmcmc.solve(path, seed=7).assignment]
for given in (path if rank == 0 else path + ".missing", [1, 2] if rank == 0 else None):
    try:
        dmcmc.solve_on(MPI.COMM_WORLD, given)
    except dmcmc.DmcmcError as error:
        report.append(str(error))
print(json.dumps(MPI.COMM_WORLD.gather(report)) if rank == 0 else MPI.COMM_WORLD.gather(report) or "")
"""


@needs_mpirun
def test_ranks_read_a_file_and_share_the_error_of_one_rank(tmp_path):
    path = tmp_path / "p.wcsp"
    path.write_text("p 3 2 2 9\n2 2 2\n2 0 1 0 1\n1 1 3\n2 1 2 0 1\n0 1 2\n")
    ended = start(2, "-c", FILES_PROGRAM, str(path))
    assert ended.returncode == 0, ended.stderr
    first, second = json.loads(ended.stdout.strip())
    assert first == second and first[0]
    assert first[1] == f"{path}.missing: no such file"
    assert first[2].startswith("expected a Problem, got list object")


COMMUNICATORS = """
from contextlib import suppress
from mpi4py import MPI
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.mpi.world import MpiTeam, World

def fail(world):
    with MpiTeam(world, 0, world.rank == 0):
        world.on_all_ranks(lambda: 1 if world.rank else (_ for _ in ()).throw(ResourceError("full")))

nodes = set()
for number in range(2200):  # MPICH has 2048 communicators
    world = World(MPI.COMM_WORLD)
    nodes.add(id(world.node_comm))
    with suppress(ResourceError):
        fail(world)
    if number % 3 == 0:
        copy = MPI.COMM_WORLD.Dup()
        node = World(copy).node_comm
        copy.Free()
        assert node == MPI.COMM_NULL
print(len(nodes))
"""


@needs_mpirun
def test_every_communicator_is_freed_also_after_errors_of_all_ranks():
    ended = start(2, "-c", COMMUNICATORS)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.replace("\n", "") == "11"  # lines of two ranks may be mixed
