"""Kernels are compiled once per machine, in the background or before the clock starts; ranks agree on their use."""

import json
import math
import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.problem_strategies import random_problem
from support.runs import dense_problem, start_run

import dmcmc
from dmcmc.compilation import components, kernel_supply
from dmcmc.compilation.components import SearchVariant, block_moves, searches_orders
from dmcmc.compilation.kernel_supply import ConcurrentWork, KernelSupply
from dmcmc.compilation.small_problems import tiny_problem
from dmcmc.config.settings import Budget, Combine, Local, Settings
from dmcmc.formats import native
from dmcmc.inference.orders.bitset_kernels import seeded
from dmcmc.inference.runtime.compile import COMPILED, Kernel, KernelSet, compilation_seconds, kernels_supplied_by
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.storage import cache_folders
from dmcmc.mpi.world import World
from dmcmc.samplers.blocks import neighbourhood_search as search
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.solving.observe import NoProgress
from dmcmc.solving.planning.divided_problem import arithmetic_for, divide_problem, soon_proven
from dmcmc.solving.planning.plan import Setup, prepare


@pytest.mark.parametrize(
    ("agents", "each", "searched"),
    [(3, 5, [False, False]), (1, 13, [True, True]), (3, 4, [False, False]), (12, 11, [False, True])],
)
def test_order_search_is_compiled_if_orders_are_searched_at_once(agents, each, searched):
    problem = dmcmc.generate("random", agents=agents, variables_per_agent=each, domain_size=2)
    assert [searches_orders(problem, timed) for timed in (False, True)] == searched


@pytest.mark.parametrize(
    ("variables", "local", "budget", "soon"),
    [
        (6, {}, None, True),
        (6, {}, 20.0, True),
        (6, {}, 0.01, False),
        (40, {}, 20.0, False),
        (6, {"method": "gibbs"}, 20.0, False),
        (6, {"cells": 9}, 20.0, False),
    ],
)
def test_soon_proven_recognises_cheap_tables(variables, local, budget, soon):
    problem = dmcmc.generate("random", agents=2, variables_per_agent=variables, domain_size=4, local_density=0.8)
    settings = Settings(local=Local(**local), budget=Budget(time=budget))
    assert soon_proven(divide_problem(problem, settings, World())) == soon


@pytest.mark.parametrize(("density", "soon"), [(0.1, True), (0.9, False)])
def test_single_variable_agents_are_soon_proven_if_their_combination_is_cheap(density, soon):
    problem = dmcmc.generate("random", agents=20, variables_per_agent=1, domain_size=5, global_density=density, seed=1)
    settings = Settings(budget=Budget(time=5.0))
    assert soon_proven(divide_problem(problem, settings, World())) == soon


@pytest.mark.parametrize("proven", [False, True])
def test_no_agent_is_sampled_if_the_optimum_was_proven_in_the_meantime(proven, monkeypatch):
    asked = []

    def sample(*rest):
        asked.append(rest)
        raise OutOfTime("out of time")

    monkeypatch.setattr(ChainSolver, "start", sample)
    monkeypatch.setattr(Setup, "never_given_up", False)
    run = start_run(dense_problem(1), local={"method": "exact"}, budget={"time": 600.0}, search="none")
    assert set(run.setup.methods) == {"exact"}, run.setup.choices
    monkeypatch.setattr(type(run.incumbent), "reached", property(lambda incumbent: proven))
    run.setup.backend.stop.cancellation.request()
    with pytest.raises(OutOfTime):
        run.first_tables()
    assert bool(asked) != proven


def test_cheap_agents_stay_exact_if_planning_took_all_the_time(monkeypatch):
    """No other kernels are compiled for them."""
    problem = dmcmc.generate("random", agents=6, variables_per_agent=1, domain_size=3, global_density=0.8)
    run = start_run(problem, budget={"time": 600.0}, search="none")
    now = time.perf_counter()
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    run.setup = run.setup.with_stop(Deadline(now - 0.01))
    monkeypatch.setattr(ChainSolver, "start", None)
    run.first_tables()
    assert run.setup.never_given_up and set(run.setup.methods) == {"exact"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Folder of the marker files; compiled kernels stay where they are, so that they are not compiled again."""
    monkeypatch.setattr(cache_folders, "kernel_folder", lambda: tmp_path)
    before = [(names, set(names)) for names in (COMPILED, kernel_supply.CALLED)]
    for names, _ in before:
        names.clear()
    yield tmp_path
    for names, old in before:
        names.clear()
        names |= old


def supply(world=None, first=True, **budget):
    """Return the kernels of a run with a time budget that compiles before its clock starts, or in the background."""
    with pytest.MonkeyPatch.context() as patch:
        if not first:
            patch.delenv("DMCMC_COMPILE")
        return KernelSupply(world or World(), Settings(budget=Budget(time=60.0, **budget)), NoProgress())


def counted(name="a set", fail=False):
    """Return a kernel set, and a list that grows when it is compiled."""
    done = []

    def compile_set():
        done.append(1)
        if fail:
            raise ValueError("broken")

    return KernelSet(name, compile_set), done


def test_a_set_is_compiled_once_per_machine(folder, monkeypatch):
    kernels, done = counted()
    supply().request(kernels)
    COMPILED.clear()  # as in another process
    supply().request(kernels)
    assert len(done) == 1 and len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("reason", ["it fails", "it cannot be stored", "there is no folder"])
def test_a_set_that_is_not_stored_has_no_marker(folder, reason, monkeypatch):
    kernels, done = counted(fail=reason == "it fails")
    if reason == "it cannot be stored":
        unsaved = iter(range(9))
        monkeypatch.setattr(kernel_supply, "unsaved_kernels", lambda: next(unsaved))
    if reason == "there is no folder":
        monkeypatch.setattr(cache_folders, "kernel_folder", lambda: None)
    supply().request(kernels)
    COMPILED.clear()
    supply().request(kernels)
    assert len(done) == 2 and list(folder.iterdir()) == []


@pytest.mark.parametrize(("local_rank", "others_miss_it", "compiles", "waits"), [
    (0, False, True, True), (0, True, True, True), (1, True, False, True), (1, False, False, False),
])  # fmt: skip
def test_one_rank_of_a_node_compiles_and_all_wait_for_it(folder, local_rank, others_miss_it, compiles, waits):
    waited, (kernels, done) = [], counted()
    world = SimpleNamespace(
        local_rank=local_rank, allgather=lambda own: [own, others_miss_it], wait=lambda: waited.append(1)
    )
    supply(world).request(kernels)
    assert (bool(done), bool(waited)) == (compiles, waits)


def test_ranks_use_a_set_only_if_all_of_them_are_ready(folder):
    kernels, _ = counted()
    for others in (True, False):
        world = SimpleNamespace(local_rank=0, allgather=lambda own, others=others: [own, others])
        supplied = supply(world, first=False)
        assert not supplied.all_ready(kernels)
        COMPILED.add(kernels.name)
        assert supplied.all_ready(kernels) == others
        COMPILED.clear()


def test_other_processes_compile_in_the_background_and_end_when_all_is_done(folder):
    good, bad = KernelSet("good", math.sqrt), KernelSet("gcd", partial(math.gcd, 1, 2))
    with supply(first=False) as kernels:
        kernels.request(bad, good._replace(compile=partial(math.sqrt, 4.0)))
        kernels.wait([good, bad], Deadline(time.perf_counter() + 300))
        children = [child.pid for child in kernels._compiler._children]
        assert good.is_compiled and bad.is_compiled and kernels.seconds > 0
    assert children and has_come(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def has_come(condition, seconds=60.0):
    """Return whether a condition holds before some seconds are over."""
    end = time.perf_counter() + seconds
    while not condition() and time.perf_counter() < end:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize("timed", [True, False])
def test_what_a_run_has_requested_is_compiled_after_its_end_if_it_had_a_time_budget(timed, folder, monkeypatch):
    """A run without a time budget has compiled what it has called."""
    monkeypatch.delenv("DMCMC_COMPILE")
    monkeypatch.setattr(kernel_supply, "cores", lambda: 1)
    first, second = KernelSet("first", partial(time.sleep, 1.0)), KernelSet("second", partial(math.sqrt, 4.0))
    with KernelSupply(World(), Settings(budget=Budget(time=0.01 if timed else None)), NoProgress()) as kernels:
        kernels.request(first, second)
        compiler = kernels._compiler
        assert has_come(lambda: compiler._waiting == [second])
    assert has_come(lambda: first.is_compiled and not any(compiler._threads.values()))
    assert second.is_compiled == timed


def test_a_set_for_later_begins_after_all_others_and_delays_none(folder, monkeypatch):
    monkeypatch.setattr(kernel_supply, "cores", lambda: 1)
    first, later = KernelSet("first", partial(time.sleep, 1.0)), KernelSet("later", partial(time.sleep, 600.0))
    quick = KernelSet("quick", partial(math.sqrt, 4.0))
    with supply(first=False) as kernels:
        kernels.request(first)
        kernels.request(later, later=True)
        compiler = kernels._compiler
        assert has_come(lambda: compiler._busy[True] == 1) and first.is_compiled
        kernels.request(quick)
        kernels.wait([quick], Deadline(time.perf_counter() + 300))
        assert quick.is_compiled and not kernels.is_ready(later)
    compiler.close()
    kernel_supply._COMPILERS.clear()


ENDLESS = """
import time
from functools import partial
from dmcmc.config.settings import Budget, Settings
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.mpi.world import World
from dmcmc.compilation.kernel_supply import KernelSupply
from dmcmc.solving.observe import NoProgress
with KernelSupply(World(), Settings(budget=Budget(time=0.01)), NoProgress()) as kernels:
    kernels.request(KernelSet("endless", partial(time.sleep, 3600.0)))
    while not kernels._compiler._children:
        time.sleep(0.05)
print(*(child.pid for child in kernels._compiler._children), flush=True)
{end}
"""


@pytest.mark.parametrize("end", ["", "import os; os._exit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_processes_that_compile_never_outlive_the_one_that_has_started_them(end, tmp_path):
    environment = {**os.environ, "DMCMC_CACHE_DIR": str(tmp_path)}
    del environment["DMCMC_COMPILE"]
    command = [sys.executable, "-c", ENDLESS.format(end=end)]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout
    assert output.split() and has_come(lambda: not any(map(is_running, output.split())))


def is_running(pid):
    """Return whether a process runs, and is no zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_runs_at_once_share_the_processes_and_each_waits_until_its_own_deadline(folder, monkeypatch):
    monkeypatch.setattr(Kernel, "is_available", lambda *_: False)
    with supply(first=False) as long, supply(first=False) as short:
        for kernels in (long, short):
            kernels.request(KernelSet("shared", partial(math.sqrt, 4.0)))
        assert long._compiler is short._compiler
        short.stop = Deadline(time.perf_counter())
        with pytest.raises(OutOfTime):
            seeded(np.int16(3))
        with kernels_supplied_by(long):
            assert run_parallel([partial(seeded, np.int16(3)), partial(seeded, np.int16(4))], 2)


@pytest.mark.parametrize(("ends", "again"), [("well", []), ("with an error", ["a set"])])
def test_a_run_does_not_start_processes_for_sets_that_an_earlier_one_has_called(folder, ends, again, monkeypatch):
    """Otherwise each of many short runs would start processes, and end them before they have compiled anything."""
    requested = []
    monkeypatch.delenv("DMCMC_COMPILE")
    monkeypatch.setattr(kernel_supply.BackgroundCompiler, "request", lambda _, sets, *_order: requested.extend(sets))
    for _ in range(2):
        requested.clear()
        with suppress(ValueError), KernelSupply(World(), Settings(), NoProgress()) as kernels:
            kernels.request(KernelSet("a set", math.sqrt))
            if ends != "well":
                raise ValueError
    assert [kernels.name for kernels in requested] == again


def test_a_set_that_other_processes_cannot_compile_is_left_to_the_run(folder):
    failing, local = KernelSet("failing", partial(math.sqrt, -1.0)), KernelSet("local", lambda: None)
    with supply(first=False) as kernels:
        kernels.wait([failing, local], Deadline(time.perf_counter() + 300))
        assert kernels.is_ready(failing, local) and not failing.is_compiled and not local.is_compiled


def test_the_wait_for_kernels_ends_with_the_time(folder):
    with supply(first=False) as kernels, pytest.raises(OutOfTime, match="still being compiled"):
        kernels.wait([KernelSet("slow", partial(time.sleep, 600.0))], Deadline(time.perf_counter() + 0.1))


def test_the_run_works_while_it_waits(folder):
    begun = []

    @contextmanager
    def work():
        begun.append(1)
        yield

    quick, slow = KernelSet("quick", partial(math.sqrt, 4.0)), KernelSet("slow", partial(time.sleep, 2.0))
    with supply(first=False) as kernels:
        kernels.request(quick)
        kernels.wait([slow], Deadline(time.perf_counter() + 300), ConcurrentWork(quick, work))
    assert len(begun) == 1


PROGRAM = """
import json, sys
import dmcmc
from dmcmc.inference.runtime.compile import compilation_seconds
problem = dmcmc.generate("meeting-scheduling", agents=20, variables_per_agent=20, domain_size=20, seed=1)
result = dmcmc.solve(problem, timeout=1.0, search="none")
print(json.dumps([result.status, result.violation, result.objective, result.bound, compilation_seconds()]))
"""


def test_a_run_on_an_empty_cache_has_an_answer_and_a_bound_without_compiling_itself(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    del environment["DMCMC_COMPILE"]
    command = [sys.executable, "-c", PROGRAM]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    status, violation, objective, bound, seconds = json.loads(output)
    assert (status, violation, seconds) == ("timeout", 0, 0.0)
    assert 0.8 * bound < objective <= bound


COMMAND = """
import os
from numba.core import event
from dmcmc.cli.main import main

class Compilation(event.Listener):
    def on_start(self, event):
        os._exit(99)

    def on_end(self, event):
        pass

event.register("numba:compile", Compilation())
os._exit(main())
"""


@pytest.mark.parametrize(
    "options",
    [
        ["--set", "local.method=gibbs", "--set", "search=branch-and-bound"],
        ["--method", "mini-bucket"],
        ["--alternatives", "3"],
        ["--task", "max-marginals"],
        ["--task", "conflict"],
    ],
    ids=lambda options: options[-1],
)
def test_a_command_with_a_time_limit_never_compiles_itself(options, tmp_path):
    """Its cache is empty: what its processes do not compile in time is not used."""
    problem = dmcmc.generate("meeting-scheduling", agents=6, variables_per_agent=10, tables="hard", seed=5)
    one_agent = replace(problem, agents=("a",), owner=np.zeros(problem.n_variables, dtype=np.int64))
    native.save(one_agent if "mini-bucket" in options else problem, tmp_path / "problem.npz")
    environment = {**os.environ, "DMCMC_CACHE_DIR": str(tmp_path / "cache")}
    del environment["DMCMC_COMPILE"]
    command = [sys.executable, "-c", COMMAND, "solve", "problem.npz", "--timeout", "2", *options]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr


def test_a_kernel_that_is_called_undeclared_is_compiled_by_another_process(folder, monkeypatch):
    monkeypatch.setattr(Kernel, "is_available", lambda *_: False)
    with supply(first=False) as kernels:
        before = compilation_seconds()
        seeded(np.int32(3))
        assert compilation_seconds() == before
        assert [name.split()[0] for name in kernels._compiler._requested] == ["seeded"]


def test_a_missing_kernel_ends_the_work_at_the_deadline(folder, monkeypatch):
    monkeypatch.setattr(Kernel, "is_available", lambda *_: False)
    with supply(first=False) as kernels, pytest.raises(OutOfTime, match="still being compiled"):
        kernels.stop = Deadline(time.perf_counter())
        seeded(np.uint8(3))


@pytest.mark.parametrize(
    ("numbers", "tables"),
    [
        ("int32", ["int32"]),
        ("int64", ["int32"]),
        ("int64", ["int32", "int64"]),
        ("float64", ["int64"]),
        ("float64", ["float64"]),
        ("float64", ["float64", "int32"]),
    ],
)
@pytest.mark.parametrize("wide", [False, True])
def test_the_tiny_problem_has_the_table_types_and_the_arithmetic_of_the_run(numbers, tables, wide):
    problem = tiny_problem(np.dtype(numbers), [np.dtype(t) for t in tables], wide)
    assert arithmetic_for(problem, Combine()).dtype.name == numbers
    assert {f.table.dtype.name for f in problem.factors[:-1]} == set(tables)
    assert (problem.domains.max() > 256) == wide and problem.forbidden_entries() == 1


@pytest.mark.parametrize(("budget", "split"), [(1e-5, True), (1e5, False)])
def test_mini_buckets_are_compiled_if_there_is_no_time_for_exact_tables(budget, split):
    """The memory limit does not matter."""
    settings = Settings(local=Local(method="exact"), budget=Budget(time=budget))
    combination = components.agent_work(
        prepare(dense_problem(0), settings, World()), "none", lambda *tiny: None
    ).tables[-1]
    work, _ = combination.compile.args
    assert bool(work.partition) == work.moment_matching == split


@pytest.mark.parametrize(("bound", "compiled"), [("mini-bucket", ["int64"]), ("dual", [])])
def test_moment_matching_of_mini_bucket_bounds_is_compiled(bound, compiled, monkeypatch):
    problem, asked = random_problem(3, variables=6, agents=3, domain=3, factors=9), []
    settings = Settings(local=Local(method="gibbs", bound=bound), budget=Budget(time=1.0))
    monkeypatch.setattr(components, "compile_matching", lambda dtype: asked.append(dtype.name))
    (tables, _) = components.agent_work(prepare(problem, settings, World()), "none", lambda *tiny: None).tables
    tables.compile()
    assert asked == compiled


def test_block_moves_anneal_when_they_are_compiled(monkeypatch):
    asked = []
    monkeypatch.setattr(search, "typical_spread", lambda graph, values: asked.append(1) or 1.0)
    block_moves(SearchVariant(np.dtype(np.int32), True, True)).compile()
    assert asked


@pytest.mark.parametrize(("budget", "methods"), [(1e-6, ["exact", "annealing"]), (1e6, ["exact"]), (None, ["exact"])])
def test_alternatives_of_exact_agents_have_a_mini_bucket_bound(budget, methods):
    """An agent with a single row has a mini-bucket bound, too, so those kernels are needed."""
    problem = dmcmc.generate("random", agents=1, variables_per_agent=5, domain_size=2)
    settings = Settings(local=Local(method="exact"), budget=Budget(time=budget))
    setup = prepare(problem, settings, World())
    possible = [choice for _, choice in setup.possible_choices([0])]
    assert [choice.method for choice in possible] == methods
    assert all("mini-bucket" in choice.bound for choice in possible[1:])
