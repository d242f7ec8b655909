"""The cost model: a larger budget never makes an exact agent inexact, limits hold, and its file may be damaged."""

import json
from dataclasses import asdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problem_strategies import random_problem
from support.ranks import documents, in_turn, needs_mpirun

from dmcmc.cli.main import main
from dmcmc.config.settings import Budget, Settings
from dmcmc.formats import native
from dmcmc.generators import registry
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.storage.cache_folders import CacheFolders, forget_folders, sources_digest
from dmcmc.inference.storage.checked_file import write_checked
from dmcmc.mpi.world import World
from dmcmc.samplers.auto import rates
from dmcmc.samplers.auto.choose import (
    SAMPLER,
    AgentWorkCounts,
    ResourceLimits,
    WorkCountList,
    choose,
    count_agent_work,
    sweeps_for,
)
from dmcmc.samplers.auto.rates import NOMINAL, bucket_efforts
from dmcmc.samplers.contract.tuning import FIRST_TABLE_SECONDS, MAIN_SHARE
from dmcmc.solving.planning.plan import prepare

MEETINGS = {"agents": 3, "variables_per_agent": 5, "domain_size": 6, "seed": 1}


def works_of(problem, memory=1 << 33, listed=0):
    arithmetic = choose_arithmetic(problem.factors)
    return [count_agent_work(local, listed, 10, 100, memory, arithmetic) for local in divide(problem).locals]


@pytest.mark.parametrize("seed", range(4))
def test_pairs_and_triangles_are_those_of_the_hidden_variables_graph(seed):
    problem = random_problem(seed, variables=20, agents=2, factors=80, arity=3)
    for local, work in zip(divide(problem).locals, works_of(problem), strict=True):
        edges = {frozenset(f.scope) for f in local.factors if len(f.scope) == 2 and set(f.scope) <= set(local.hidden)}
        triples = combinations(local.hidden, 3)
        triangles = sum(all(frozenset(pair) in edges for pair in combinations(three, 2)) for three in triples)
        assert (work.pairs, work.triangles) == (len(edges), triangles)


def meetings(**sizes):
    return registry.generate("meeting-scheduling", MEETINGS | sizes)


@st.composite
def surveys(draw):
    """Agents with any amount of work, based on a real one."""
    some, made = works_of(meetings())[0], []
    for agent in range(draw(st.integers(1, 6))):
        effort = draw(st.floats(1e4, 1e12))
        made.append(
            some._replace(
                agent=agent,
                cells=effort * 10,
                effort=effort,
                shared=effort * draw(st.floats(0, 1)),
                bytes=draw(st.integers(1, 2**36)),
                weight=draw(st.floats(1, 1e6)),
                width=draw(st.integers(1, 15)),
                triangles=draw(st.integers(0, 300)),
                pairs=draw(st.integers(1, 100)),
            )
        )
    return made


def exact_of(works, **limits):
    return {
        work.agent
        for work, c in zip(works, choose(works, ResourceLimits(**limits)), strict=True)
        if c.method == "exact"
    }


@given(surveys(), st.floats(1e-3, 1e3), st.floats(1, 100), st.sampled_from([0.0, 0.01, 0.2]), st.integers(1, 4))
def test_more_resources_never_make_an_exact_agent_inexact(works, time, times, gap, threads):
    less = {"time": time, "gap": gap, "threads": threads, "memory": 1 << 30, "cells": 10**10}
    base = exact_of(works, **less)
    if not gap:  # if a gap is allowed, bounds may close it, and other agents get the time
        assert base <= exact_of(works, **less | {"time": time * times})
        assert base <= exact_of(works, **less | {"threads": 2 * threads})
    base = exact_of(works, **less | {"time": None})
    assert base <= exact_of(works, **less | {"time": None, "memory": 1 << 34})
    assert base <= exact_of(works, **less | {"time": None, "cells": 10**12})


@given(surveys(), st.sampled_from([None, 0.5, 50.0]), st.integers(1, 2**36), st.integers(0, 10**12))
def test_memory_and_cells_are_limits(works, time, memory, cells):
    for agent in exact_of(works, time=time, memory=memory, cells=cells):
        assert works[agent].bytes <= memory and works[agent].cells <= cells


@given(surveys(), st.floats(1e-3, 1e3), st.sampled_from([0.0, 0.05]))
def test_exact_agents_take_half_of_the_time_at_most_and_all_have_a_reason(works, time, gap):
    choices = choose(works, ResourceLimits(time=time, gap=gap))
    assert sum(c.seconds for c in choices if c.method == "exact") <= time / 2 * (1 + 1e-9)
    assert all(c.reason and c.method in ("exact", SAMPLER) for c in choices)
    assert all((c.bound == "none") == (c.method == "exact") for c in choices)


@given(surveys(), st.floats(1e-3, 1e5))
def test_first_eliminations_are_limited_unless_all_agents_are_exact(works, time):
    choices = choose(works, ResourceLimits(time=time))
    exact = [choice.seconds for choice in choices if choice.method == "exact"]
    assert len(exact) == len(works) or sum(exact) <= MAIN_SHARE / 2 * min(time, FIRST_TABLE_SECONDS) * (1 + 1e-9)


def test_with_a_gap_allowed_bounds_replace_long_eliminations():
    work = works_of(meetings(variables_per_agent=10, domain_size=24, local_density=0.8))[0]
    assert [choose([work], ResourceLimits(time=1000, gap=gap))[0].method for gap in (0.0, 0.05)] == ["exact", SAMPLER]
    assert sweeps_for(0.1, 5) <= sweeps_for(0.01, 5) <= sweeps_for(0.01, 10) < sweeps_for(0.0, 10) == float("inf")


def test_an_agent_that_can_neither_be_eliminated_nor_sampled_is_an_error():
    work = works_of(meetings())[0]._replace(bytes=100, obstacle="too many rows")
    assert choose([work], ResourceLimits(time=1e-9, memory=100))[0].method == "exact"  # there is no other way
    with pytest.raises(ResourceError, match="too many rows"):
        choose([work], ResourceLimits(memory=99))


def test_bounds_by_rows_and_triangles():
    work = works_of(meetings(variables_per_agent=8, local_density=0.9))[0]
    assert work.triangles > 0

    def bound(changed, **limits):
        return choose([changed], ResourceLimits(cells=0, **limits))[0].bound

    assert bound(work) == "triangles" and bound(work, bound="dual") == "dual" and bound(work, bound="none") == "none"
    assert bound(work._replace(triangles=0)) == "dual+mini-bucket"
    assert bound(work._replace(triangles=0, pairs=1000)) == "dual"
    assert bound(work._replace(triangles=0, pairs=1000, rows=1)) == "dual+mini-bucket"
    assert (
        bound(work._replace(rows=1)) == bound(work._replace(rows=1), gpu=True, opened=True) == "triangles+mini-bucket"
    )
    assert bound(work._replace(triangles=0), gpu=True, opened=True) == "dual"
    assert bound(work._replace(rows=1 << 21)) == "mini-bucket"
    assert bound(work._replace(triangles=10**6, pairs=1000), time=0.01) == "dual"


@given(st.integers(0, 50))
def test_efforts_count_every_cell(seed):
    for local in divide(random_problem(seed, 10, 2, 5, 16, 3)).locals:
        efforts = bucket_efforts(local.plan)
        assert efforts.shape == (local.plan.buckets,)
        assert (efforts >= 0.05 * np.minimum(local.plan.program.cells, 1 << 15)).all()


def test_triangles_are_counted():
    for work, local in zip(
        works_of(meetings(local_density=0.9)), divide(meetings(local_density=0.9)).locals, strict=True
    ):
        pairs = {frozenset(f.scope) for f in local.factors if len(f.scope) == 2 and set(f.scope) <= set(local.hidden)}
        near = {v: {u for p in pairs if v in p for u in p - {v}} for v in local.hidden}
        assert work.pairs == len(pairs)
        assert work.triangles == sum(len(near[a] & near[b]) for a, b in map(tuple, pairs)) / 3


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Folder of the rates file; compiled kernels stay where they are, so that they are not compiled again."""
    monkeypatch.setattr(rates, "usable_folders", lambda: CacheFolders(tmp_path, tmp_path))
    forget_folders()
    return tmp_path


def test_rates_are_measured_once_and_stored(root, monkeypatch):
    found = rates.load_rates()
    assert found == rates._clamped(found) and 0 < found.update < 1
    monkeypatch.setattr(rates, "measure", lambda: pytest.fail("measured again"))
    assert rates.load_rates() == found


@pytest.mark.parametrize("contents", [b"", b"{", b"{}", b"[]", b"\0", None])
def test_a_damaged_file_is_measured_again_and_reported_once(root, monkeypatch, contents, caplog):
    monkeypatch.setattr(rates, "measure", lambda: NOMINAL)
    path = rates.rates_file()
    rates.load_rates()
    for _ in range(2):
        path.write_bytes(path.read_bytes().replace(b"update", b"updaTe") if contents is None else contents)
        assert rates.load_rates() == NOMINAL
        assert rates.read_rates(path) == NOMINAL
    assert caplog.messages == [
        f"dmcmc: the rates of this machine are measured again: {path} is damaged (its checksum does not match)"
    ]


def rates_text(update):
    return json.dumps(asdict(NOMINAL) | {"update": update})


NO_MACHINE = [rates_text(value) for value in (1e9, 10**400, float("nan"), None, [1])]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"update": 1}', "\x00", "[" * 100_000, '"update"', *NO_MACHINE]
)
def test_implausible_rates_are_measured_again(root, text):
    path = rates.rates_file()
    write_checked(path, path.name, text.encode())
    assert rates.read_rates(path) is None


def test_only_rates_files_of_this_node_are_deleted(root, monkeypatch):
    monkeypatch.setattr(rates, "measure", lambda: NOMINAL)
    path, digits = rates.rates_file(), "0" * 16
    prefix = path.name.partition(sources_digest())[0]
    for name in (f"{prefix}{digits}", f"{prefix}{digits}.json", f"{prefix}2-{digits}"):
        (root / name).touch()
    rates.load_rates()
    assert {entry.name for entry in root.iterdir()} == {path.name, f"{prefix}2-{digits}"}


def test_rates_that_cannot_be_stored_are_no_error(root, monkeypatch):
    monkeypatch.setattr(rates, "measure", lambda: NOMINAL)
    monkeypatch.setattr(rates, "usable_folders", lambda: CacheFolders(root / "missing", None))
    assert rates.load_rates() == NOMINAL
    monkeypatch.setattr(rates, "usable_folders", lambda: CacheFolders(None, None))
    assert rates.load_rates() == NOMINAL


def test_rates_are_measured_only_with_a_time_budget():
    problem = meetings(variables_per_agent=9, domain_size=12)
    free = Settings(device="cpu")
    assert prepare(problem, free, World(), lambda: pytest.fail("measured")).methods == ("exact",) * 3
    short = Settings(device="cpu", budget=Budget(time=1e-3))
    assert SAMPLER in prepare(problem, short, World(), lambda: NOMINAL).methods


def test_explain_prints_the_choice_of_each_agent(tmp_path, capfd):
    path = tmp_path / "run.yaml"
    sizes = ", ".join(f"{k}: {v}" for k, v in MEETINGS.items())
    path.write_text(f"problem: {{generator: meeting-scheduling, {sizes}}}\nlocal: {{cells: 700}}\ndevice: cpu\n")
    assert main(["run", str(path), "--explain", "--json"]) == 0
    out, err = capfd.readouterr()
    head, *lines, _, division, tree, last = (line for line in err.splitlines() if not line.startswith("dmcmc:"))
    heads = "agent variables shared table rows width cells memory method device estimated time reason"
    assert head.split() == heads.split()
    assert len(lines) == 3 and all(line.split()[1:3] == ["5", "1"] for line in lines)
    assert tree.startswith("pseudo-tree: auto, root a")
    assert division.startswith("division into agents: ") and "exact: joined tables need at most " in last
    choices = json.loads(out)["provenance"]["plan"]["choices"]
    assert list(choices) == ["a0", "a1", "a2"]
    for line, choice in zip(lines, choices.values(), strict=True):
        assert choice["reason"] in line
        assert ("exact takes" in line) == (f"{SAMPLER} + " in line) == (choice["bound"] != "none")
    assert main(["run", str(path), "--json"]) == 0
    assert capfd.readouterr().err == ""


@needs_mpirun
def test_two_ranks_make_the_same_choice_and_one_explains(tmp_path, capfd):
    native.save(meetings(), str(tmp_path / "p.npz"))
    command = ["solve", str(tmp_path / "p.npz"), "--explain", "--json", "--device", "cpu"]
    commands = [[*command, *more] for more in ([], ["--timeout", "20"], ["--set", "local.cells=700"])]
    assert [main(argv) for argv in commands] == [0, 0, 0]
    alone, together = capfd.readouterr().out, in_turn(2, *commands)
    assert together.stderr.count("agent  variables") == 3
    plans = [
        (plan["methods"], {name: (c["bound"], c["device"]) for name, c in plan["choices"].items()})
        for plan in (found["provenance"]["plan"] for found in documents(alone) + documents(together.stdout))
    ]
    assert plans[:3] == plans[3:] and len(plans) == 6


PLAIN = AgentWorkCounts(0, 3, 1, 4, 0, 2, 8.0, 1.0, 0.0, 0.0, 0.0, 0, 64, 16.0, 2.0, 2, 0, 0.0, "", ((0,),))


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 9)), max_size=8), st.integers(1, 3))
def test_counts_of_ranks_are_merged(made, ranks):
    works = [PLAIN._replace(agent=a, hidden=kind, weight=weight) for a, (kind, weight) in enumerate(made)]
    shares = [range(rank, len(works), ranks) for rank in range(ranks)]
    found = WorkCountList.merged(len(works), [(share, WorkCountList.of([works[a] for a in share])) for share in shares])
    assert list(found) == works and found[:] == works and len(found) == len(works)
    assert found.kinds.distinct == list(dict.fromkeys(work._replace(agent=0, weight=0.0) for work in works))
    assert found.weights.dtype == np.float64


def test_remaining_scopes_are_indices_of_boundary_variables():
    assert PLAIN.remaining_tables((7, 9)) == ((7,),)
