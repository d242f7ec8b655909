"""Agents find a depth-first tree by a token: that of the whole graph, on any number of ranks."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problem_strategies import random_problem
from support.ranks import needs_mpirun, start

import dmcmc
from dmcmc.inference.dpop.pseudotree import depth_first
from dmcmc.inference.model.compact_sequences import IndexGroups
from dmcmc.mpi.distributed_dfs import depth_first_by_token
from dmcmc.mpi.world import World

SOLVE = """
import json
import dmcmc
from support.problem_strategies import random_problem
from dmcmc.mpi.world import connect

world = connect()
found = dmcmc.solve_on(world, random_problem(52, 16, 9, 3, 24, 2, 99, 0.0), method="exact", tree="depth-first")
if world.rank == 0:
    print(found.to_json())
"""


@given(st.integers(0, 14), st.floats(0, 1), st.integers(0, 1000))
def test_the_tree_is_that_of_the_whole_graph(agents, density, seed):
    rng = np.random.default_rng(seed)
    neighbours = [set() for _ in range(agents)]
    for a in range(agents):
        for b in range(a):
            if rng.random() < density:
                neighbours[a].add(b)
                neighbours[b].add(a)
    found, sent = depth_first_by_token(dict(enumerate(neighbours)), [0] * agents, World())
    ranked = sorted(range(agents), key=lambda a: (-len(neighbours[a]), a))
    assert tuple(found[a] for a in range(agents)) == tuple(depth_first(IndexGroups.of(map(sorted, neighbours)), ranked))
    edges = sum(map(len, neighbours)) // 2
    degrees_and_tokens = 2 * edges + 4 * edges
    assert 4 * edges <= sum(one.count for one in sent.values()) <= degrees_and_tokens + 2 * edges * agents
    assert all(one.kind == "TREE" and one.size >= 24 * one.count for one in sent.values())


@needs_mpirun
def test_ranks_find_the_same_tree_and_count_its_messages():
    problem = random_problem(52, 16, 9, 3, 24, 2, 99, 0.0)
    together = start(3, "-c", SOLVE)
    assert together.returncode == 0, together.stderr
    found, expected = json.loads(together.stdout), dmcmc.solve(problem, method="exact", tree="depth-first")
    assert found["provenance"]["plan"]["pseudo_tree"] == expected.provenance["plan"]["pseudo_tree"]
    assert (found["objective"], found["assignment"]) == (expected.objective, expected.assignment)
    assert all(agent["messages"]["TREE"]["count"] >= 2 for agent in found["agents"] if agent["messages"].get("UTIL"))
    assert expected.objective == dmcmc.solve(problem, method="exact").objective


@pytest.mark.parametrize("tree", ["deep"])
def test_an_unknown_tree_is_refused(tree):
    with pytest.raises(dmcmc.DmcmcError, match="expected auto or depth-first"):
        dmcmc.solve(random_problem(1), tree=tree)
