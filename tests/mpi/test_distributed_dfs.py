"""Agents find a depth-first tree by a token: that of the whole graph, on any number of ranks."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problem_strategies import random_problem
from support.ranks import needs_mpirun, start

import dmcmc
from dmcmc.formats import agent_files
from dmcmc.inference.dpop.trees import depth_first, names
from dmcmc.inference.model.compact_sequences import IndexGroups
from dmcmc.mpi.distributed_dfs import depth_first_by_token
from dmcmc.mpi.world import World

SOLVE = """
import sys
import dmcmc
from support.problem_strategies import random_problem
from dmcmc.mpi.world import connect

world, root = connect(), sys.argv[1] if len(sys.argv) > 1 else None
problem = random_problem(52, 16, 9, 3, 24, 2, 99, 0.0)
found = dmcmc.solve_on(world, problem, method="exact", tree="depth-first", root=root)
if world.rank == 0:
    print(found.to_json())
"""


ALL_TREES = """
import sys
import dmcmc
from dmcmc.config.make_settings import settings_from
from dmcmc.inference.dpop import trees
from dmcmc.mpi.world import connect
from dmcmc.anytime.solve_private import solve_directory
from support.problem_strategies import random_problem

world, folder = connect(), sys.argv[1]
problem = random_problem(52, 16, 9, 3, 24, 2, 99, 0.0)
for tree in ("auto", "depth-first", *trees.names()):
    for mode in ("dpop", "shared", "private"):
        options = {"method": "exact", "tree": tree, "root": "a4"}
        if mode == "private":
            found = solve_directory(folder, settings_from(None, options), world)
        else:
            found = dmcmc.solve_on(world, problem, mode=mode, presolve="none", **options)
        if world.rank == 0:
            print(tree, mode, found.status, found.objective, found.provenance["plan"]["pseudo_tree"], sep="|")
"""


@given(st.integers(0, 14), st.floats(0, 1), st.integers(0, 1000), st.booleans())
def test_the_tree_is_that_of_the_whole_graph(agents, density, seed, named):
    rng = np.random.default_rng(seed)
    neighbours = [set() for _ in range(agents)]
    for a in range(agents):
        for b in range(a):
            if rng.random() < density:
                neighbours[a].add(b)
                neighbours[b].add(a)
    root = int(rng.integers(agents)) if named and agents else None
    found, sent = depth_first_by_token(dict(enumerate(neighbours)), [0] * agents, World(), root)
    ranked = sorted(range(agents), key=lambda a: (a != root, -len(neighbours[a]), a))
    assert root is None or found[root] == -1
    assert tuple(found[a] for a in range(agents)) == tuple(depth_first(IndexGroups.of(map(sorted, neighbours)), ranked))
    edges = sum(map(len, neighbours)) // 2
    degrees_and_tokens = 2 * edges + 4 * edges
    assert 4 * edges <= sum(one.count for one in sent.values()) <= degrees_and_tokens + 2 * edges * agents
    assert all(one.kind == "TREE" and one.size >= 24 * one.count for one in sent.values())


@needs_mpirun
@pytest.mark.parametrize("root", [None, "a4"])
def test_ranks_find_the_same_tree_and_count_its_messages(root):
    problem = random_problem(52, 16, 9, 3, 24, 2, 99, 0.0)
    together = start(3, "-c", SOLVE, *([] if root is None else [root]))
    assert together.returncode == 0, together.stderr
    found, expected = json.loads(together.stdout), dmcmc.solve(problem, method="exact", tree="depth-first", root=root)
    assert root is None or expected.provenance["plan"]["pseudo_tree"][root] is None
    assert found["provenance"]["plan"]["pseudo_tree"] == expected.provenance["plan"]["pseudo_tree"]
    assert (found["objective"], found["assignment"]) == (expected.objective, expected.assignment)
    assert all(agent["messages"]["TREE"]["count"] >= 2 for agent in found["agents"] if agent["messages"].get("UTIL"))
    assert expected.objective == dmcmc.solve(problem, method="exact").objective


def test_an_unknown_tree_is_refused():
    with pytest.raises(
        dmcmc.DmcmcError, match=r"tree: unknown tree heuristic 'deep' \(known: auto, depth-first, max-d"
    ):
        dmcmc.solve(random_problem(1), tree="deep")


@needs_mpirun
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_agree_on_every_tree_also_with_private_inputs_and_shared_tables(ranks, tmp_path):
    problem = random_problem(52, 16, 9, 3, 24, 2, 99, 0.0)
    agent_files.write(problem, tmp_path, 1 << 30)
    together = start(ranks, "-c", ALL_TREES, str(tmp_path))
    assert together.returncode == 0, together.stderr
    lines = [line.split("|") for line in together.stdout.splitlines()]
    assert len(lines) == 3 * (2 + len(names()))
    for tree, _, status, objective, pseudo_tree in lines:
        alone = dmcmc.solve(problem, method="exact", tree=tree, root="a4", presolve="none")
        assert (status, objective) == ("optimal", str(alone.objective))
        assert pseudo_tree == str(alone.provenance["plan"]["pseudo_tree"])
