"""How much memory a run may take where nothing says: half of what is free, shared among the ranks of a machine."""

import json

import pytest

import dmcmc
from dmcmc.cli.main import main
from dmcmc.config import settings as configured
from dmcmc.config.settings import Budget, Settings
from dmcmc.mpi.world import World
from dmcmc.run.setup import sharing_memory

GIB = 1 << 30


class Shared(World):
    """A rank that shares its machine with others; theirs have what they have."""

    def __init__(self, ranks, others=()):
        super().__init__()
        self.local_size, self.others = ranks, others

    def allgather(self, value):
        return [value, *self.others]


@pytest.fixture
def machine(monkeypatch):
    def has(size):
        monkeypatch.setattr(configured, "free_memory", lambda: size)

    return has


@pytest.mark.parametrize(
    ("size", "ranks", "expected"),
    [(64, 1, 32), (63, 1, 24), (8, 1, 4), (64, 16, 2), (8, 3, 1), (None, 1, 16), (0.01, 4, 1 / 16)],
)
def test_ranks_that_share_a_machine_share_its_memory(machine, size, ranks, expected):
    machine(None if size is None else int(size * GIB))
    assert sharing_memory(Settings(), Shared(ranks)).budget.memory == expected * GIB
    assert ranks > 1 or Settings().budget.bytes == expected * GIB


def test_all_ranks_take_what_the_narrowest_machine_allows(machine):
    machine(8 * GIB)
    assert sharing_memory(Settings(), Shared(2, others=[GIB, 2 * GIB])).budget.memory == GIB


def test_a_number_is_what_each_rank_may_take(machine):
    machine(GIB)
    settings = Settings(budget=Budget(memory=8 * GIB, time=3.0))
    assert sharing_memory(settings, Shared(4)) == settings


@pytest.mark.parametrize("command", ["solve", "run"])
def test_a_container_limits_both_commands(command, machine, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(["generate", "random", "agents=2", "variables_per_agent=3", "domain_size=2", "--output", "p.npz"]) == 0
    (tmp_path / "run.yaml").write_text("problem: {file: p.npz}\n")
    capfd.readouterr()
    machine(GIB)
    assert main([command, {"solve": "p.npz", "run": "run.yaml"}[command], "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["provenance"]["config"]["budget"]["memory"] == GIB // 2


def test_an_option_says_it_too(machine, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    main(["generate", "random", "agents=2", "variables_per_agent=3", "domain_size=2", "--output", "p.npz"])
    capfd.readouterr()
    assert main(["solve", "p.npz", "--json", "--memory", "2MiB"]) == 0
    assert json.loads(capfd.readouterr().out)["provenance"]["config"]["budget"]["memory"] == 2 << 20
    assert main(["solve", "p.npz", "--memory", "much"]) == 2
    assert "--memory: expected auto, a size such as 8GiB" in capfd.readouterr().err


def test_the_front_door_says_what_it_took(machine):
    machine(GIB)
    problem = dmcmc.generate("random", agents=2, variables_per_agent=3, domain_size=2)
    assert dmcmc.solve(problem).provenance["config"]["budget"]["memory"] == GIB // 2
    assert dmcmc.solve(problem, memory="2MB").provenance["config"]["budget"]["memory"] == 2_000_000
