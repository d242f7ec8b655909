"""What the ranks of a node share: GPUs, several ranks each or several a rank's choice, and cores."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ranks import needs_mpirun, start

from dmcmc.mpi.compute_node import Seat, arranged, visible_gpus
from dmcmc.mpi.placement import place, place_on_tree


def nodes(*gpus, cores=None, launcher=16):
    seats = [Seat("here", r, frozenset((cores or [range(16)] * len(gpus))[r]), launcher, g) for r, g in enumerate(gpus)]
    return [arranged(seats, rank) for rank in range(len(seats))]


@pytest.mark.parametrize(
    ("seen", "used", "sharers"),
    [
        ([("0",)] * 3, ["0"] * 3, [3] * 3),
        ([("0", "1")] * 2, ["0", "1"], [1, 1]),
        ([("0", "1")] * 5, ["0", "0", "0", "1", "1"], [3, 3, 3, 2, 2]),
        ([tuple("01234567")] * 2, ["0", "4"], [1, 1]),
        ([("3",), ("5",)], ["3", "5"], [1, 1]),  # the launcher has given each its own
        ([("a",), ("a",), ("b",)], ["a", "a", "b"], [2, 2, 1]),
        ([(), ("0", "1")], [None, "0"], [1, 1]),  # one of them must not see any
        ([(), ()], [None, None], [1, 1]),
    ],
)
def test_ranks_of_a_node_share_its_gpus(seen, used, sharers):
    found = nodes(*seen)
    chosen = [node.gpu or (gpus[0] if gpus else None) for node, gpus in zip(found, seen, strict=True)]
    assert chosen == used and [node.gpu_sharers for node in found] == sharers


def test_a_rank_that_is_alone_leaves_its_gpus_as_they_are():
    assert nodes(("0", "1"))[0].gpu is None


def test_bound_ranks_have_their_cores_to_themselves_and_idle_ones_are_told():
    free, own, few = nodes((), ()), nodes((), (), cores=[[0, 1], [2, 3]], launcher=4), nodes((), (), cores=[[0], [1]])
    assert [node.core_sharers for node in (*free, *own, *few)] == [2, 2, 1, 1, 1, 1]
    assert [node.bound for node in (*free, *own, *few)] == [None] * 4 + [(1, 16)] * 2


def test_gpus_are_counted_by_their_device_files(tmp_path):
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert visible_gpus({}, str(tmp_path)) == ("0", "1")
    assert visible_gpus({}, str(tmp_path / "none")) == ()
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}, str(tmp_path)) == ()


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.integers(1, 8), st.data())
def test_pieces_of_the_tree_keep_all_ranks_at_work(costs, ranks, data):
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
def test_info_says_where_each_rank_is(tmp_path):
    done = start(2, "-m", "dmcmc", "info", "--json", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    ranks = json.loads(done.stdout)["ranks"]
    assert [one["rank"] for one in ranks] == [0, 1]
    assert all(one["cores"] >= 1 and one["host"] and "gpu" in one for one in ranks)
