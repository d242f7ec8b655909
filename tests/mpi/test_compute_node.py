"""Ranks of a compute node share GPUs and cores: several ranks per GPU, or several GPUs per rank."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ranks import needs_mpirun, start

from dmcmc.mpi.compute_node import RankInfo, arrange_ranks, place, place_on_tree, visible_gpus


def nodes(*gpus, cores=None, launcher_cores=16):
    infos = [
        RankInfo("here", r, frozenset((cores or [range(16)] * len(gpus))[r]), launcher_cores, g)
        for r, g in enumerate(gpus)
    ]
    return [arrange_ranks(infos, rank) for rank in range(len(infos))]


@pytest.mark.parametrize(
    ("seen", "used", "sharers"),
    [
        ([("0",)] * 3, ["0"] * 3, [3] * 3),
        ([("0", "1")] * 2, ["0", "1"], [1, 1]),
        ([("0", "1")] * 5, ["0", "0", "0", "1", "1"], [3, 3, 3, 2, 2]),
        ([tuple("01234567")] * 2, ["0", "4"], [1, 1]),
        ([("3",), ("5",)], ["3", "5"], [1, 1]),  # the launcher has assigned each its own
        ([("a",), ("a",), ("b",)], ["a", "a", "b"], [2, 2, 1]),
        ([(), ("0", "1")], [None, "0"], [1, 1]),  # the launcher hides GPUs from one of them
        ([(), ()], [None, None], [1, 1]),
    ],
)
def test_ranks_of_a_node_share_its_gpus(seen, used, sharers):
    found = nodes(*seen)
    chosen = [node.gpu or (gpus[0] if gpus else None) for node, gpus in zip(found, seen, strict=True)]
    assert chosen == used and [node.gpu_sharers for node in found] == sharers


def test_a_single_rank_keeps_all_its_gpus():
    assert nodes(("0", "1"))[0].gpu is None


def test_bound_ranks_do_not_share_cores_and_idle_cores_are_reported():
    unbound, bound, idle = (
        nodes((), ()),
        nodes((), (), cores=[[0, 1], [2, 3]], launcher_cores=4),
        nodes((), (), cores=[[0], [1]]),
    )
    assert [node.core_sharers for node in (*unbound, *bound, *idle)] == [2, 2, 1, 1, 1, 1]
    assert [node.core_binding for node in (*unbound, *bound, *idle)] == [None] * 4 + [(1, 16)] * 2


def test_gpus_are_counted_by_their_device_files(tmp_path):
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert visible_gpus({}, str(tmp_path)) == ("0", "1")
    assert visible_gpus({}, str(tmp_path / "none")) == ()
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}, str(tmp_path)) == ()


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.integers(1, 8), st.data())
def test_every_rank_has_a_piece_of_the_tree(costs, ranks, data):
    parent = [data.draw(st.integers(-1, a - 1)) for a in range(len(costs))]
    owner = place_on_tree(costs, parent, ranks)
    assert set(owner) == set(range(min(ranks, len(costs))))
    assert len(place(costs, parent, ranks)) == len(costs)


def test_pieces_of_the_tree_need_few_messages_between_ranks():
    parent = [-1, *range(99)]
    owner = place([1.0] * 100, parent, 4)
    assert sum(owner[a] != owner[p] for a, p in enumerate(parent) if p >= 0) == 3


@needs_mpirun
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_info_reports_the_node_of_each_rank(tmp_path):
    done = start(2, "-m", "dmcmc", "info", "--json", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    ranks = json.loads(done.stdout)["ranks"]
    assert [one["rank"] for one in ranks] == [0, 1]
    assert all(one["cores"] >= 1 and one["host"] and "gpu" in one for one in ranks)
