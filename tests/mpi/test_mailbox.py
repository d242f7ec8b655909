"""Messages of any number of agents, in tags that every MPI has, in slices, in whatever order they come."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.sparse.sparse_table import ListedTable
from dmcmc.mpi.mailbox import Post
from dmcmc.mpi.message_contents import Chosen, Clock, Utils
from dmcmc.mpi.wire_format import Letter, WireError, inline_arrays, open_letter, pack, read_head

pytest.importorskip("mpi4py")

MOST_TAG = 32767  # what the MPI standard promises


class There:
    """A message that a probe has found."""

    def __init__(self, data):
        self.data = data

    def Recv(self, buffer):
        buffer[:] = self.data


class Wire:
    """A communicator of two ranks that keeps what is sent with one tag in order."""

    def __init__(self):
        self.sent, self.tags, self.longest = {}, set(), 0

    def Isend(self, data, dest, tag):
        self.tags.add(tag)
        if tag % 2:
            self.longest = max(self.longest, len(data))
        self.sent.setdefault((dest, tag), []).append(bytes(data))

    def Improbe(self, source, tag, status):
        waiting = self.sent.get((self.rank, tag))
        if not waiting:
            return None
        data = waiting.pop(0)
        status.Set_elements(self.byte, len(data))
        status.Set_source(1 - self.rank)
        return There(data)

    def Recv(self, buffer, source, tag):
        buffer[:] = np.frombuffer(self.sent[self.rank, tag].pop(0), dtype=np.uint8)

    def seen_by(self, rank):
        from mpi4py import MPI

        view = Wire()
        view.sent, view.tags, view.rank, view.byte = self.sent, self.tags, rank, MPI.BYTE
        view.Isend = self.Isend
        return view


class Side:
    """One of two ranks on a wire."""

    def __init__(self, rank, wire):
        self.rank, self.size, self.comm = rank, 2, wire.seen_by(rank)


def table(*scope, dtype=np.int32, seed=0):
    return Table(scope, np.random.default_rng(seed).integers(0, 9, (3,) * len(scope)).astype(dtype))


def same(one, other):
    if one is None or other is None:
        return one is other
    if isinstance(one, dict):
        return one == other
    if isinstance(one, Table):
        alike = one.scope == other.scope and one.values.dtype == other.values.dtype
        return alike and np.array_equal(one.values, other.values)
    return len(one) == len(other) and all(map(same, one, other))


def test_tags_stay_small_for_any_number_of_agents_and_messages_find_their_edges():
    agents, wire = 12_000, Wire()
    owner = tuple(agent % 2 for agent in range(agents))
    here, there = (Post(Side(rank, wire), owner) for rank in (0, 1))
    here.limit = there.limit = 64
    mine, message = range(1, agents, 2), (table(5), table(2, 3, 4))
    contents = {"UTIL": Utils(message, message), "VALUE": Chosen({1: 2}, None), "OUTSIDE": message}
    for kind, content in contents.items():
        for agent in mine:
            there.send(kind, agent, 0, content, clock=Clock(agent / 7, agent))
    assert max(wire.tags) <= MOST_TAG and len(wire.tags) <= 6 and wire.longest <= 64
    for kind in ("OUTSIDE", "VALUE", "UTIL"):
        for agent in reversed(mine):
            found, clock = here.receive(kind, agent, 1)
            assert same(found, contents[kind]) and clock == Clock(agent / 7, agent)
    assert there.between.count == 3 * len(mine) and there.between.size > 0


def test_messages_within_a_rank_are_handed_over():
    post, message = Post(Side(0, Wire()), (0, 0)), object()
    post.send("UTIL", 1, 0, message, Clock(2.5, 3))
    assert post.receive("UTIL", 1, 1) == (message, Clock(2.5, 3))


def test_an_agent_hears_of_those_messages_that_have_come():
    wire = Wire()
    here, there = (Post(Side(rank, wire), (0, 0, 1, 1)) for rank in (0, 1))
    here.send("UTIL", 1, 0, None)
    there.send("UTIL", 3, 0, None)
    there.send("VALUE", 2, 0, None)
    assert here.arrived("UTIL", wait=True) == [1, 3] and here.arrived("UTIL", wait=False) == []
    assert here.arrived("VALUE", wait=True) == [2]


scopes = st.lists(st.integers(0, 2**40), max_size=4, unique=True).map(tuple)
dtypes = st.sampled_from([np.int32, np.int64, np.float64])
tables = st.lists(st.builds(lambda s, d: table(*s, dtype=d), scopes, dtypes), max_size=3).map(tuple)
values = st.dictionaries(st.integers(0, 2**40), st.integers(0, 99), max_size=4)
letters = st.one_of(
    st.builds(lambda low, up: ("UTIL", Utils(low, up)), tables, st.none() | tables),
    st.builds(lambda low: ("UTIL", Utils(low, low)), tables),
    st.builds(lambda low, up: ("VALUE", Chosen(low, up)), values, st.none() | values),
    st.builds(lambda low: ("OUTSIDE", low), tables),
    st.tuples(st.sampled_from(["UTIL", "VALUE", "OUTSIDE"]), st.none()),
)


@given(letters, st.integers(0, 2**40), st.builds(Clock, st.floats(0, 1e9), st.integers(0, 2**62)), st.booleans())
def test_what_is_packed_is_what_comes_out(content, agent, clock, inline):
    kind, message = content
    head, arrays = pack(Letter(kind, agent, message, clock), 1 << 20 if inline else -1)
    read = read_head(head)
    letter = open_letter(read, inline_arrays(read) if inline else arrays)
    assert (letter.kind, letter.agent, letter.clock) == (kind, agent, clock) and same(letter.message, message)
    if kind == "UTIL" and message is not None:
        assert (letter.message.upper is letter.message.lower) == (message.upper is message.lower)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize(
    ("dtype", "lowest"), [(np.int32, -(2**29)), (np.int64, -(2**61)), (np.float64, -np.inf), (np.int32, -(2**20))]
)
def test_a_table_of_which_little_is_possible_goes_as_an_incomplete_one(dtype, lowest, inline):
    rng = np.random.default_rng(0)
    values = np.where(rng.random((8, 16, 10)) < 0.05, rng.integers(-99, 99, (8, 16, 10)), lowest).astype(dtype)
    full = Table((3,), np.arange(100).astype(dtype))
    head, arrays = pack(
        Letter("UTIL", 5, Utils((Table((2, 9, 4), values), full), None), Clock(0.5)), 1 << 20 if inline else -1
    )
    assert len(head) + sum(array.nbytes for array in arrays) < values.nbytes / 3 + full.values.nbytes + 300
    read = read_head(head)
    found = open_letter(read, inline_arrays(read) if inline else arrays).message.lower
    assert [table.scope for table in found] == [(2, 9, 4), (3,)]
    assert isinstance(found[0], Table if lowest == -(2**20) else ListedTable)  # and stays so in memory
    assert pack(Letter("UTIL", 5, Utils(found, None), Clock(0.5)), 1 << 20 if inline else -1)[0] == head
    for table, sent in zip(found, (values, full.values), strict=True):
        np.testing.assert_array_equal(table.values, sent)
        assert table.values.dtype == sent.dtype


def test_other_versions_are_refused():
    head, _ = pack(Letter("VALUE", 1, None, Clock()), 0)
    for bad in (b"", head[8:], bytes([head[0] + 1]) + head[1:]):
        with pytest.raises(WireError, match="another version"):
            read_head(bad)
