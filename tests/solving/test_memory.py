"""The default memory budget of a run: half of the free memory, divided among the ranks of a machine."""

import json
import subprocess
import sys
from itertools import count
from types import SimpleNamespace

import pytest

import dmcmc
from dmcmc.cli.main import main
from dmcmc.config import settings as configured
from dmcmc.config.settings import Budget, Settings
from dmcmc.inference.dpop.agent_step import UtilNode, util_step
from dmcmc.mpi.world import World
from dmcmc.solving.planning import divided_problem as dividing
from dmcmc.solving.planning.divided_problem import with_memory_limit
from dmcmc.solving.planning.plan import prepare

GIB = 1 << 30
HOURS = count(-3600, -3600)  # times in seconds that no run has: the free memory is asked again after a second


class SharingRank(World):
    """A rank that shares its machine with others, and receives other machines' budgets."""

    def __init__(self, ranks, others=()):
        super().__init__()
        self.local_size, self.others = ranks, others

    def allgather(self, value):
        return [value, *self.others]


@pytest.fixture
def machine(monkeypatch):
    def has(size):
        monkeypatch.setattr(configured, "free_memory", lambda: size)
        monkeypatch.setattr(dividing, "time", SimpleNamespace(monotonic=lambda: next(HOURS)))

    return has


@pytest.mark.parametrize(
    ("size", "ranks", "expected"),
    [(64, 1, 32), (63, 1, 24), (8, 1, 4), (64, 16, 2), (8, 3, 1), (None, 1, 16), (0.01, 4, 1 / 16)],
)
def test_ranks_that_share_a_machine_share_its_memory(machine, size, ranks, expected):
    machine(None if size is None else int(size * GIB))
    assert with_memory_limit(Settings(), SharingRank(ranks)).budget.memory == expected * GIB
    assert ranks > 1 or Settings().budget.bytes == expected * GIB


def test_all_ranks_take_the_smallest_budget_of_all_machines(machine):
    machine(8 * GIB)
    assert with_memory_limit(Settings(), SharingRank(2, others=[GIB, 2 * GIB])).budget.memory == GIB


def test_a_given_budget_holds_for_each_rank(machine):
    machine(GIB)
    settings = Settings(budget=Budget(memory=8 * GIB, time=3.0))
    assert with_memory_limit(settings, SharingRank(4)) == settings


@pytest.mark.parametrize("command", ["solve", "run"])
def test_a_container_limits_both_commands(command, machine, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(["generate", "random", "agents=2", "variables_per_agent=3", "domain_size=2", "--output", "p.npz"]) == 0
    (tmp_path / "run.yaml").write_text("problem: {file: p.npz}\n")
    capfd.readouterr()
    machine(GIB)
    assert main([command, {"solve": "p.npz", "run": "run.yaml"}[command], "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["provenance"]["config"]["budget"]["memory"] == GIB // 2


def test_the_memory_option_sets_the_budget(machine, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    main(["generate", "random", "agents=2", "variables_per_agent=3", "domain_size=2", "--output", "p.npz"])
    capfd.readouterr()
    assert main(["solve", "p.npz", "--json", "--memory", "2MiB"]) == 0
    assert json.loads(capfd.readouterr().out)["provenance"]["config"]["budget"]["memory"] == 2 << 20
    assert main(["solve", "p.npz", "--memory", "much"]) == 2
    assert "--memory: expected auto, a size such as 8GiB" in capfd.readouterr().err


def test_results_of_the_python_api_report_the_budget(machine):
    machine(GIB)
    problem = dmcmc.generate("random", agents=2, variables_per_agent=3, domain_size=2)
    assert dmcmc.solve(problem).provenance["config"]["budget"]["memory"] == GIB // 2
    assert dmcmc.solve(problem, memory="2MB").provenance["config"]["budget"]["memory"] == 2_000_000


CHILD = """
import resource, sys
import dmcmc
from dmcmc.inference.dpop.assign_variables import split

def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def solved(nodes, domain_size, memory):
    network = dmcmc.generate("random-network", nodes=nodes, domain_size=domain_size, density=0.5, tightness=0.0)
    return dmcmc.solve(split(network, 4), memory=memory, samples=5, runs=1, device="cpu")

solved(8, 3, "20KB")  # loads or compiles what is used
before = peak()
result = solved(12, 20, "64MB")
assert len(result.assignment) == 12 and result.bound is not None
print(before, peak())
"""


def test_the_peak_of_a_process_stays_within_its_budget():
    for _ in range(2):  # the first one compiles, which takes memory, too
        done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stderr[-2000:]
    before, after = map(int, done.stdout.split())
    assert after <= max(before, 200 << 20) + 64_000_000 + 20_000_000


def test_little_memory_limits_the_sampled_rows(machine):
    problem = dmcmc.generate("random", agents=4, variables_per_agent=6, domain_size=6, interface_variables=3)
    ample, tight = (prepare(problem, Settings(budget=Budget(memory=size)), World()) for size in (1 << 30, 1 << 17))
    assert {work.listed_rows for work in ample.surveys} == {0}
    assert all(0 < work.listed_rows < work.rows for work in tight.surveys)


def test_little_memory_limits_the_bytes_of_each_step(machine):
    problem = dmcmc.generate("random", agents=4, variables_per_agent=6, domain_size=6, interface_variables=3)
    ample, tight = (prepare(problem, Settings(budget=Budget(memory=size)), World()) for size in (1 << 30, 1 << 20))
    assert ample.step_bytes > 1 << 28  # all steps fit
    assert tight.step_bytes < (1 << 20) // 4


def test_finished_steps_release_their_workspace(machine):
    problem = dmcmc.generate("random", agents=3, variables_per_agent=4, domain_size=4, interface_variables=2)
    setup = prepare(problem, Settings(), World())
    table = setup.divided.division.locals[0]
    step = util_step(UtilNode((), (), (), table.interface, (), problem.domains, setup.divided.arithmetic))
    assert step.elimination.arena.size and not step.without_tables().elimination.arena.size
    assert step.without_tables().total == step.total and step.without_tables().elimination.plan is step.elimination.plan
    assert all(values.base is None or values.base.size == values.size for _, values in step.message)


def test_the_choices_of_all_agents_are_computed_once(machine):
    problem = dmcmc.generate("random", agents=4, variables_per_agent=4, domain_size=3)
    setup = prepare(problem, Settings(), World())
    # Each agent reads the same object.
    assert setup.methods is setup.methods and setup.listed_rows is setup.listed_rows
