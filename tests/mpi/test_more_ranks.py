"""More ranks than agents: a rank without an agent works on the rows of another rank's agent, from start to end."""

import json

import pytest
from support.ranks import needs_mpirun, start
from support.runs import hard_problem

from dmcmc.formats import native

CONTINUE_SAMPLING = """
import json, sys
from dmcmc.formats import native
from dmcmc.mpi.world import connect
from dmcmc.results.result import SAMPLING
from dmcmc.anytime.scheduler.proposal import Allocation
from support.runs import finish_run, start_run

def on(directive):
    allocations = (Allocation(SAMPLING, 0, 3.0), Allocation(SAMPLING, 1, 3.0))
    return directive._replace(allocations=allocations, stop=len(first) == 2)

def noted(run, directive):
    first.append(drawn(run))
    run.improve(directive)

def drawn(run):
    tables = run.tables
    chains = [tables.helped] if tables.helped else [agent.lower.chains for agent in tables.agents.values()]
    return [sum(one.draws) for one in chains]

problem, world, first = native.load(sys.argv[1]), connect(), []
local = {"method": "gibbs", "runs": 1, "samples": 2, "bound": "none"}
run = start_run(problem, world=world, local=local, budget={"time": 600})
result = finish_run(run, on, noted)
parts = world.gather((world.rank, run.tables.team.size, *first[0], *drawn(run)))
if result is not None:
    print(json.dumps({"parts": parts, "result": json.loads(result.to_json())}))
"""


@needs_mpirun
@pytest.mark.parametrize("ranks", [3, 5])
def test_all_ranks_of_an_agent_continue_sampling(tmp_path, ranks):
    problem = hard_problem(variables=6, agents=2, domain=12)
    native.save(problem, tmp_path / "problem.npz")
    (tmp_path / "driver.py").write_text(CONTINUE_SAMPLING)
    done = start(ranks, str(tmp_path / "driver.py"), str(tmp_path / "problem.npz"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(team for _, team, *_ in found["parts"]) == {3: [1, 2, 2], 5: [2, 2, 3, 3, 3]}[ranks]
    assert all(after > before for _, _, before, after in found["parts"]), "each has drawn more"
    result = found["result"]
    assert problem.evaluate(result["assignment"]).objective == result["objective"]
    assert sum(agent["updates"] for agent in result["agents"]) == sum(after for *_, after in found["parts"])
