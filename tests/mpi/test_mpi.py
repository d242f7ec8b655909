"""Agents on ranks: bitwise the same result on any number of ranks, and a common end when one rank fails."""

import json
import os
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problem_strategies import random_problem, random_table
from support.ranks import in_turn, lines, needs_mpirun, start

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.anytime.solve_private import solve_directory
from dmcmc.cli.main import main
from dmcmc.config.make_settings import settings_of
from dmcmc.files.document import Document
from dmcmc.formats import agent_files, native
from dmcmc.mpi.compute_node import announced_size, launched, place_agents
from dmcmc.results.stored_result import machine

pytest.importorskip("mpi4py")

RANKS = (1, 2, 3, 8)

SOLVE_ALL = """
import json, os, sys
from types import SimpleNamespace
import dmcmc
from dmcmc.mpi.compute_node import announced_rank
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.world import connect
from dmcmc.samplers import in_team
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.methods import exact

Mailbox.limit = 100  # tables are sent in many slices
# Ranks eliminate any agent together, and bound any rows together.
tuning.ENTRIES_PER_SENT = 0
exact.tuning = in_team.tuning = SimpleNamespace(**vars(tuning) | {"MAX_COPIED_ENTRIES": 0, "FEW_ROWS": 0})
os.environ["CUDA_VISIBLE_DEVICES"] = "" if announced_rank(os.environ) == 0 else "0"
world = connect()
assert world.size == 1 or set(world.leaders) == {1}  # the first rank that sees a GPU
if world.size > 2:  # as on two nodes
    world.node_comm = world.comm.Split(world.rank % 2)
    world.leaders = tuple(world.comm.allgather(world.node_comm.bcast(world.rank)))
found = {}
for name in sys.argv[2:]:
    for method in ("exact", "gibbs", "auto", *("annealing", "tempering", "blocks") * ("two_agents" in name)):
        bound = "none" if "many_agents" in name or "infeasible" in name else "auto"
        local = {"method": method, "runs": 2, "samples": 5, "cells": 200, "bound": bound}
        combine = {"method": "mini-bucket", "z": 2} if "mini_buckets" in name else {}
        budget = {}
        if "slices" in name:
            combine, budget = {"method": "sliced"}, {"memory": 1 << 18}
        if "little_memory" in name:  # exact agents are eliminated in slices
            budget = {"memory": 24000}
        sections = {"local": local, "budget": budget, "seed": 11, "device": "cpu"}
        result = dmcmc.solve_on(world, dmcmc.load(name), **sections, combine=combine)
        found[f"{name} {method}"] = json.loads(result.to_json())
        scattered = dmcmc.load(name) if world.rank == 0 else None  # rank 0 sends each rank its own agents' parts
        if method in ("exact", "gibbs"):
            result = dmcmc.solve_on(world, scattered, **sections, combine=combine)
            found[f"{name} {method} scattered"] = json.loads(result.to_json())
        if method in ("exact", "auto") and "slices" not in name:
            combine |= {"mode": "shared"}
            known = scattered if method == "auto" else dmcmc.load(name)
            result = dmcmc.solve_on(world, known, **sections, combine=combine)
            found[f"{name} {method} shared"] = json.loads(result.to_json())
if world.rank == 0:
    with open(sys.argv[1], "w") as file:
        json.dump({"size": world.size, "results": found}, file)
"""

FAIL = """
import importlib, os, resource, signal, sys
from dmcmc.cli.main import main
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.mpi.compute_node import announced_rank

how, rank, module, phase, failed = sys.argv[1:6]
place = importlib.import_module(f"dmcmc.{module}")
*outer, phase = phase.split(".")
for name in outer:
    place = getattr(place, name)
before = getattr(place, phase)

def fail(*given, **named):
    if announced_rank(os.environ) != int(rank):
        return before(*given, **named)
    open(failed, "w").close()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "full":  # no file can grow
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return before(*given, **named)
    raise (OutOfTime if how == "late" else RuntimeError)("broken on purpose")

setattr(place, phase, fail)
sys.exit(main(sys.argv[6:]))
"""


def chain(agents, seed):
    """Return a chain of agents with two variables each: neighbours share a factor, every third agent one more."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(1, 4, 2 * agents)
    scopes = [(2 * a, 2 * a + 1) for a in range(agents)] + [(2 * a + 1, 2 * a + 3) for a in range(agents - 1)]
    scopes += [(2 * a, 2 * a + 6) for a in range(0, agents - 3, 3)]
    return Problem(
        variables=tuple(f"x{v}" for v in range(2 * agents)),
        domains=domains,
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=np.repeat(np.arange(agents), 2),
        factors=tuple(Factor.of(s, random_table(rng, tuple(domains[list(s)]), 1000)) for s in scopes),
    )


def wide_agents(agents, variables_per_agent=5):
    """Return agents that share three variables with the next one; there are ties and some forbidden pairs."""
    rng, n = np.random.default_rng(5), agents * variables_per_agent
    domains = rng.integers(3, 6, n)
    scopes = [
        (a * variables_per_agent + u, a * variables_per_agent + v)
        for a in range(agents)
        for v in range(variables_per_agent)
        for u in range(v)
    ]
    scopes += [
        (a * variables_per_agent + k, (a + 1) * variables_per_agent + 2 - k)
        for a in range(agents - 1)
        for k in range(3)
    ]
    return Problem(
        variables=tuple(f"x{v}" for v in range(n)),
        domains=domains,
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=np.repeat(np.arange(agents), variables_per_agent),
        factors=tuple(Factor.of(s, random_table(rng, tuple(domains[list(s)]), 20, 0.05)) for s in scopes),
    )


def clique(agents, floats=True):
    """Return a problem in which every two agents share a factor."""
    rng = np.random.default_rng(agents)
    scopes = [(u, v) for u in range(agents) for v in range(u)]
    return Problem(
        variables=tuple(f"x{v}" for v in range(agents)),
        domains=np.full(agents, 3),
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=np.arange(agents),
        factors=tuple(Factor.of(s, random_table(rng, (3, 3), 1.0 if floats else 9, floats=floats)) for s in scopes),
    )


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """Return the results of all problems and methods as a function of the number of ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    problems = {
        "many_agents.npz": chain(13, 0),
        "two_agents.npz": wide_agents(2),
        "little_memory.npz": wide_agents(2, 7),
        "mini_buckets.npz": clique(9),
        "slices.npz": clique(10, floats=False),
        "disconnected.npz": random_problem(52, 16, 9, 3, 12, 3, 1000, 0.02),
        "floats.npz": random_problem(3, 16, 7, 3, 24, 3, 1.0, 0.0, True, "min"),
        "infeasible.npz": random_problem(10, 12, 6, 3, 24, 3, 9, 0.6),
    }
    for name, problem in problems.items():
        native.save(problem, folder / name)
    (folder / "solve_all.py").write_text(SOLVE_ALL)

    @lru_cache
    def results(ranks):
        out = folder / f"{ranks}.json"
        done = start(ranks, str(folder / "solve_all.py"), str(out), *(str(folder / name) for name in problems))
        assert done.returncode == 0, done.stderr
        found = json.loads(out.read_text())
        assert found["size"] == max(1, ranks)
        return {Path(name).name: result for name, result in found["results"].items()}

    return results


def invariant(result):
    """Return the parts of a result that must not depend on the ranks of the agents."""
    plan = {key: value for key, value in result["provenance"]["plan"].items() if key not in ("ranks", "helpers")}
    agents = [{k: v for k, v in a.items() if k not in ("rank", "time")} for a in result["agents"]]
    names = ("status", "objective", "bound", "gap", "violation", "assignment", "msg_count", "msg_size", "sense")
    return {name: result[name] for name in names} | {"plan": plan, "agents": agents}


def answer_of(result):
    """Return the parts of a result that must not depend on the way of messages either."""
    answer = {k: v for k, v in invariant(result).items() if not k.startswith("msg") and k not in ("plan", "agents")}
    return answer | {"agents": [(a["name"], a["z"], a["gap"], a["exact"]) for a in result["agents"]]}


@needs_mpirun
@pytest.mark.parametrize("ranks", RANKS)
def test_results_are_bitwise_equal_on_any_number_of_ranks(solved, ranks):
    alone, together = solved(0), solved(ranks)
    assert alone.keys() == together.keys()
    for name, result in together.items():
        if name.endswith("shared"):
            assert answer_of(result) == answer_of(alone[name.removesuffix(" shared")]), name
            continue
        assert invariant(result) == invariant(alone[name.removesuffix(" scattered")]), name
        assert ("deal" in result["control"]) == (name.endswith("scattered") and ranks > 1)
        assert result["provenance"]["ranks"] == ranks
        edges = sum(p is not None for p in result["provenance"]["plan"]["pseudo_tree"].values())
        assert result["msg_count"] > 3 * edges if "slices" in name else result["msg_count"] == 2 * edges, name
        assert bool(result["control"]) == (ranks > 1) and result["ncccs"] == alone[name]["ncccs"]
        assert len({a["rank"] for a in result["agents"]}) == min(ranks, len(result["agents"]))  # all ranks work


@needs_mpirun
def test_the_problems_cover_all_cases(solved):
    """Otherwise the comparison of ranks would test less than intended."""
    found = solved(0)
    trees = {name: result["provenance"]["plan"]["pseudo_tree"] for name, result in found.items()}
    split = found["mini_buckets.npz exact"]
    assert any(agent["z"] == 2 for agent in split["agents"]) and split["bound"] > split["objective"]
    roots = {name: sum(parent is None for parent in tree.values()) for name, tree in trees.items()}
    assert len(trees["many_agents.npz exact"]) > max(RANKS) > len(trees["two_agents.npz exact"])
    assert roots["many_agents.npz exact"] == 1
    assert 1 < roots["disconnected.npz exact"] < len(trees["disconnected.npz exact"])
    assert {result["status"] for result in found.values()} == {"optimal", "feasible", "infeasible", "unsatisfied"}


@needs_mpirun
def test_the_command_line_under_a_launcher_prints_one_result(tmp_path, capfd):
    native.save(chain(5, 2), tmp_path / "problem.npz")
    (tmp_path / "run.yaml").write_text("problem: {file: problem.npz}\nlocal: {method: gibbs, samples: 5}\nseed: 3\n")
    command = ("run", str(tmp_path / "run.yaml"), "--json")
    assert main(command) == 0
    alone, together = capfd.readouterr().out, start(3, "-m", "dmcmc", *command)
    assert together.returncode == 0
    assert invariant(json.loads(together.stdout)) == invariant(json.loads(alone))


@needs_mpirun
def test_bad_input_is_reported_once_for_all_ranks(tmp_path):
    native.save(chain(5, 2), tmp_path / "problem.npz")
    (tmp_path / "run.yaml").write_text("problem: {file: problem.npz}\nlocal: {method: exact}\n")
    run, missing = ["run", str(tmp_path / "run.yaml")], ["run", str(tmp_path / "no.yaml")]
    bad = [missing, [*run, "--sede"], [*run, "--seed=x"], [*run, "-q", "--set", "local.method=gibs"]]
    done = in_turn(3, *bad, [*run, "-q", "--set", "budget.memory=9"], code=2)
    assert done.stdout == "" and "Traceback" not in done.stderr
    assert [line.startswith("dmcmc: error: ") for line in lines(done.stderr)] == [True] * 5


_SAMPLED = {"method": "gibbs", "samples": 5}
_IMPROVED = {"local": {**_SAMPLED, "bound": "none"}, "budget": {"time": 600}}
PHASES = {
    "load parts": ("kill", "solving.private.private_inputs", "read_agent", {}),
    "plan": ("kill", "solving.solve", "plan", {}),
    "tree parts": ("kill", "mpi.distributed_dfs", "exchange", {"combine": {"tree": "depth-first"}}),
    "rows of one agent": ("raise", "solving.local_tables", "_sampled", {"local": _SAMPLED}),
    "sample": ("kill", "solving.local_tables", "_sampled_agents", {"local": _SAMPLED}),
    "UTIL": ("raise", "solving.combine_tables", "util_turns", {}),
    "UTIL parts": ("kill", "solving.combine_tables", "util_turns", {"local": _SAMPLED}),
    "VALUE": ("kill", "solving.combine_tables", "value_phase", {}),
    "improving": ("kill", "anytime.rank_run", "time_slice_of", _IMPROVED),
    "late alone": (
        "late",
        "solving.coordinator",
        "Coordinator.name_sources",
        _IMPROVED,
    ),  # while the other ranks continue
    "improving parts": ("kill", "anytime.rank_run", "time_slice_of", _IMPROVED),
}


@needs_mpirun
@pytest.mark.parametrize("phase", PHASES)
def test_a_failing_rank_ends_all_and_a_later_run_continues(tmp_path, phase):
    """The others wait for its messages; without an abort they would wait for ever."""
    how, module, work, sections = PHASES[phase]
    problem, kept = wide_agents(1) if phase == "rows of one agent" else chain(6, 2), tmp_path / "kept"
    config, source = _written(tmp_path, problem, "parts" in phase, checkpoint=str(kept), **sections)
    done = start(3, *_failing(tmp_path, how, 1, module, work), "run", config)
    took = time.time() - (tmp_path / "failed").stat().st_mtime
    assert done.returncode != 0 and took < (10 if how == "kill" else 60)  # 10 s if the machine has one core per rank
    assert "Traceback" not in done.stdout + done.stderr
    assert not (tmp_path / "result.json").exists()
    ours = lines(done.stderr)
    if how != "kill":
        assert len(ours) == 1
        text = "error: " if how == "late" else "internal error: RuntimeError: "
        assert ours[0].startswith(f"dmcmc: rank 1: {text}broken on purpose")
    else:
        assert ours == []
    tables, incumbent = list(kept.glob("agent-*.npz")), list(kept.glob("incumbent*.npz"))
    assert len(tables) == 6 if module == "solving.combine_tables" else len(tables) < 6
    if "budget" in sections:
        assert len(incumbent) == (6 if "parts" in phase else 1)
        return
    again, alone = (source(**sections, **more) for more in ({"checkpoint": str(kept)}, {}))
    assert (again.objective, again.bound, again.assignment) == (alone.objective, alone.bound, alone.assignment)


@needs_mpirun
def test_lack_of_time_on_one_rank_ends_the_run_with_the_best_answer(tmp_path):
    config, _ = _written(tmp_path, chain(6, 2), False, **_IMPROVED)
    done = start(3, *_failing(tmp_path, "late", 1, "anytime.rank_run", "time_slice_of"), "run", config)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "timeout"


def _written(folder, problem, parts, **sections):
    """Return a configuration file with an output, and a function that solves the same problem in this process."""
    native.save(problem, folder / "problem.npz")
    agent_files.write(problem, folder / "parts", 1 << 30)
    where = "directory: parts" if parts else "file: problem.npz"
    text = [f"problem: {{{where}}}", *(f"{key}: {json.dumps(one)}" for key, one in sections.items())]
    (folder / "run.yaml").write_text("\n".join([*text, f"output: {folder / 'result.json'}"]))

    def solved(**sections):
        config = settings_of(Document("", sections))
        if parts:
            return solve_directory(folder / "parts", config, share_assignment=True)
        return dmcmc.solve(problem, config)

    return str(folder / "run.yaml"), solved


def _failing(folder, how, rank, module, work):
    """Return a command line in which one rank fails in some function."""
    (folder / "fail.py").write_text(FAIL)
    return [str(folder / "fail.py"), how, str(rank), module, work, str(folder / "failed")]


@needs_mpirun
def test_an_answer_that_does_not_fit_the_disk_is_still_printed(tmp_path):
    config, source = _written(tmp_path, chain(6, 2), True)
    done = start(2, *_failing(tmp_path, "full", 0, "cli.on_all_ranks", "deliver"), "run", config, "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["objective"] == source().objective
    assert [line.split("result.json")[1] for line in lines(done.stderr)] == [": cannot be written: File too large"]
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_launcher_of_another_mpi_is_recognised_and_refused_once(tmp_path, rank):
    """Such a launcher starts processes that each see a world of one, so that each would do all of the work."""
    native.save(chain(2, 2), tmp_path / "problem.npz")
    (tmp_path / "run.yaml").write_text("problem: {file: problem.npz}\n")
    announced = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": rank}
    done = start(0, "-m", "dmcmc", "run", str(tmp_path / "run.yaml"), **announced)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    ours = lines(done.stderr)
    assert len(ours) == (rank == "0")
    assert all("2 processes" in line and "world of one" in line and "mpirun" in line for line in ours)


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize("launcher", ["Open MPI", "PMIx"])
def test_a_launcher_that_mpich_cannot_talk_to_is_one_line_with_the_remedy(launcher, rank):
    """MPICH itself would end the process with 'unsupported PMI version' and its stack."""
    if not str(machine()["mpi"]).startswith("MPICH"):
        pytest.skip("the MPI library is not MPICH")
    environment = {"PMIX_NAMESPACE": "prterun-1@1", "PMIX_RANK": rank}
    if launcher == "Open MPI":
        environment |= {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": rank}
    done = start(0, "-m", "dmcmc", "info", **environment)
    assert (done.returncode, done.stdout) == (2, "")
    ours = done.stderr.splitlines()
    assert len(ours) == (rank == "0")
    assert all(launcher in line and "MPICH" in line and "use the mpirun of that library" in line for line in ours)


def test_the_launchers_environment_is_recognised():
    assert not launched({"PATH": "/bin"})
    assert launched({"PMI_RANK": "0"})
    assert announced_size({}) == 1
    assert announced_size({"PMI_SIZE": "3", "OMPI_COMM_WORLD_SIZE": "x"}) == 3


costs = st.lists(st.one_of(st.just(0.0), st.floats(0, 1e12)), max_size=30)


@given(costs, st.integers(1, 12))
def test_every_agent_has_one_rank_and_no_rank_idles_while_another_has_two(costs, ranks):
    owner = place_agents(costs, ranks)
    assert len(owner) == len(costs)
    assert all(0 <= rank < ranks for rank in owner)
    assert owner == place_agents(list(costs), ranks)
    assert len(set(owner)) == min(ranks, len(costs))


@given(costs, st.integers(1, 12))
def test_the_loads_differ_by_at_most_one_agent(costs, ranks):
    owner = place_agents(costs, ranks)
    load = [sum(c for c, r in zip(costs, owner, strict=True) if r == rank) for rank in range(ranks)]
    assert max(load) - min(load) <= max(costs, default=0.0) * (1 + 1e-9) + 1e-9


DIFFERENT_CORES = """
import os, sys
from dmcmc.config.settings import Budget, Local, Settings
from dmcmc.formats import native
from dmcmc.mpi.world import connect
from dmcmc.solving.planning.plan import prepare

world = connect()
world.local_size = world.core_sharers = 1  # as on separate nodes
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[: 2 - world.rank])
for method in ("gibbs", "exact", "auto"):
    setup = prepare(native.load(sys.argv[1]), Settings(local=Local(method=method), budget=Budget(time=5.0)), world)
    threads = world.allgather(setup.backend.threads)
    agreed = world.allgather((setup.owner, setup.choices, setup.limits, setup.rates, setup.divided.config))
    if world.rank == 0:
        print(method, threads, agreed[0] == agreed[1])
"""


@needs_mpirun
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_ranks_with_different_numbers_of_cores_agree_on_the_plan(tmp_path):
    native.save(chain(9, 4), tmp_path / "problem.npz")
    (tmp_path / "widths.py").write_text(DIFFERENT_CORES)
    done = start(2, str(tmp_path / "widths.py"), str(tmp_path / "problem.npz"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{method} [2, 1] True" for method in ("gibbs", "exact", "auto")]


COUNTED_MESSAGES = """
import pickle
from mpi4py import MPI
from dmcmc.mpi.world import connect

before = MPI.pickle.dumps
world = connect()
together = world.allgather({"rank": world.rank}, "ranks"), world.bcast("all" if world.rank == 0 else None, "word")
gathered, counted = world.gather([world.rank], "lists"), world.counts.take()
data = {name: len(pickle.dumps(value, 5)) for name, value in (("ranks", {"rank": world.rank}), ("word", "all"))}
assert together == ([{"rank": 0}, {"rank": 1}], "all") and gathered == ([[0], [1]] if world.rank == 0 else None)
assert counted["ranks"] == (1, data["ranks"]) and counted.get("word", (1, data["word"])) == (1, data["word"])
assert ("word" in counted) == (world.rank == 0) and ("lists" in counted) == (world.rank == 1)
assert MPI.pickle.dumps == before
"""


@needs_mpirun
def test_control_messages_are_counted_and_mpi4py_pickling_is_unchanged():
    done = start(2, "-c", COUNTED_MESSAGES)
    assert done.returncode == 0, done.stderr
