"""Messages of any number of agents: with few tags, in slices, and in any order of arrival."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.inference.dpop.agent_step import ChosenValues, Clock, UsableRows, UtilTables
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.sparse.sparse_table import SparseBackedTable
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.wire_format import Envelope, WireError, inline_arrays, pack, read_header, unpack

pytest.importorskip("mpi4py")

MAX_TAG = 32767  # guaranteed by the MPI standard


class ProbedMessage:
    """A message that a probe has found."""

    def __init__(self, data):
        self.data = data

    def Recv(self, buffer):
        buffer[:] = self.data


class FakeCommunicator:
    """A communicator of two ranks that keeps the messages of each tag in order."""

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
        return ProbedMessage(data)

    def Recv(self, buffer, source, tag):
        buffer[:] = np.frombuffer(self.sent[self.rank, tag].pop(0), dtype=np.uint8)

    def seen_by(self, rank):
        from mpi4py import MPI

        view = FakeCommunicator()
        view.sent, view.tags, view.rank, view.byte = self.sent, self.tags, rank, MPI.BYTE
        view.Isend = self.Isend
        return view


class FakeWorld:
    """The world of one of two ranks."""

    def __init__(self, rank, network):
        self.rank, self.size, self.comm = rank, 2, network.seen_by(rank)


def table(*scope, dtype=np.int32, seed=0):
    return EncodedTable(scope, np.random.default_rng(seed).integers(0, 9, (3,) * len(scope)).astype(dtype))


def equal_contents(one, other):
    if one is None or other is None:
        return one is other
    if isinstance(one, dict):
        return one == other
    if isinstance(one, UsableRows):
        return one.scope == other.scope and np.array_equal(one.rows, other.rows)
    if isinstance(one, EncodedTable):
        equal_types = one.scope == other.scope and one.values.dtype == other.values.dtype
        return equal_types and np.array_equal(one.values, other.values)
    return len(one) == len(other) and all(map(equal_contents, one, other))


def test_tags_stay_small_for_any_number_of_agents_and_messages_reach_their_edges():
    agents, network = 12_000, FakeCommunicator()
    owner = tuple(agent % 2 for agent in range(agents))
    first, second = (Mailbox(FakeWorld(rank, network), owner) for rank in (0, 1))
    first.limit = second.limit = 64
    senders, message = range(1, agents, 2), (table(5), table(2, 3, 4))
    contents = {"UTIL": UtilTables(message, message), "VALUE": ChosenValues({1: 2}, None), "OUTSIDE": message}
    for kind, content in contents.items():
        for agent in senders:
            second.send(kind, agent, 0, content, clock=Clock(agent / 7, agent))
    assert max(network.tags) <= MAX_TAG and len(network.tags) <= 6 and network.longest <= 64
    for kind in ("OUTSIDE", "VALUE", "UTIL"):
        for agent in reversed(senders):
            found, clock = first.receive(kind, agent, 1)
            assert equal_contents(found, contents[kind]) and clock == Clock(agent / 7, agent)
    assert second.sent_to_ranks.count == 3 * len(senders) and second.sent_to_ranks.size > 0


def test_messages_within_a_rank_are_passed_directly():
    mailbox, message = Mailbox(FakeWorld(0, FakeCommunicator()), (0, 0)), object()
    mailbox.send("UTIL", 1, 0, message, Clock(2.5, 3))
    assert mailbox.receive("UTIL", 1, 1) == (message, Clock(2.5, 3))


def test_arrived_returns_the_messages_since_the_last_call():
    network = FakeCommunicator()
    first, second = (Mailbox(FakeWorld(rank, network), (0, 0, 1, 1)) for rank in (0, 1))
    first.send("UTIL", 1, 0, None)
    second.send("UTIL", 3, 0, None)
    second.send("VALUE", 2, 0, None)
    assert first.arrived("UTIL", wait=True) == [1, 3] and first.arrived("UTIL", wait=False) == []
    assert first.arrived("VALUE", wait=True) == [2]


scopes = st.lists(st.integers(0, 2**40), max_size=4, unique=True).map(tuple)
dtypes = st.sampled_from([np.int32, np.int64, np.float64])
tables = st.lists(st.builds(lambda s, d: table(*s, dtype=d), scopes, dtypes), max_size=3).map(tuple)
values = st.dictionaries(st.integers(0, 2**40), st.integers(0, 99), max_size=4)
usable_rows = st.builds(
    lambda scope, seed: UsableRows(scope, np.random.default_rng(seed).random([3] * len(scope)) < 0.5),
    scopes,
    st.integers(0, 99),
)
messages = st.one_of(
    st.builds(lambda *usable: ("USABLE", usable), usable_rows, usable_rows),
    st.builds(lambda low, up: ("UTIL", UtilTables(low, up)), tables, st.none() | tables),
    st.builds(lambda low: ("UTIL", UtilTables(low, low)), tables),
    st.builds(lambda low, up: ("VALUE", ChosenValues(low, up)), values, st.none() | values),
    st.builds(lambda low: ("OUTSIDE", low), tables),
    st.tuples(st.sampled_from(["UTIL", "VALUE", "OUTSIDE", "USABLE"]), st.none()),
)


@given(messages, st.integers(0, 2**40), st.builds(Clock, st.floats(0, 1e9), st.integers(0, 2**62)), st.booleans())
def test_packing_and_unpacking_preserve_a_message(content, agent, clock, inline):
    kind, message = content
    header, arrays = pack(Envelope(kind, agent, message, clock), 1 << 20 if inline else -1)
    parsed = read_header(header)
    envelope = unpack(parsed, inline_arrays(parsed) if inline else arrays)
    assert (envelope.kind, envelope.agent, envelope.clock) == (kind, agent, clock) and equal_contents(
        envelope.message, message
    )
    if kind == "UTIL" and message is not None:
        assert (envelope.message.upper is envelope.message.lower) == (message.upper is message.lower)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize(
    ("dtype", "lowest"), [(np.int32, -(2**29)), (np.int64, -(2**61)), (np.float64, -np.inf), (np.int32, -(2**20))]
)
def test_a_table_with_few_distinct_entries_is_sent_in_sparse_form(dtype, lowest, inline):
    rng = np.random.default_rng(0)
    values = np.where(rng.random((8, 16, 10)) < 0.05, rng.integers(-99, 99, (8, 16, 10)), lowest).astype(dtype)
    dense = EncodedTable((3,), np.arange(100).astype(dtype))
    header, arrays = pack(
        Envelope("UTIL", 5, UtilTables((EncodedTable((2, 9, 4), values), dense), None), Clock(0.5)),
        1 << 20 if inline else -1,
    )
    assert len(header) + sum(array.nbytes for array in arrays) < values.nbytes / 3 + dense.values.nbytes + 300
    parsed = read_header(header)
    found = unpack(parsed, inline_arrays(parsed) if inline else arrays).message.lower
    assert [table.scope for table in found] == [(2, 9, 4), (3,)]
    assert isinstance(
        found[0], EncodedTable if lowest == -(2**20) else SparseBackedTable
    )  # and is sparse in memory too
    assert pack(Envelope("UTIL", 5, UtilTables(found, None), Clock(0.5)), 1 << 20 if inline else -1)[0] == header
    for table, sent in zip(found, (values, dense.values), strict=True):
        np.testing.assert_array_equal(table.values, sent)
        assert table.values.dtype == sent.dtype


def test_other_versions_are_refused():
    header, _ = pack(Envelope("VALUE", 1, None, Clock()), 0)
    for bad in (b"", header[8:], bytes([header[0] + 1]) + header[1:]):
        with pytest.raises(WireError, match="another version"):
            read_header(bad)
