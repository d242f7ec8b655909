"""Test that the parts of a scattered problem arrive unchanged."""

import numpy as np

import dmcmc
from dmcmc.mpi.world import World
from dmcmc.solving.planning.rank_view import scatter_parts


class Channel(World):
    """One of two ranks; rank 0 appends copies of what it sends to a list, and rank 1 takes it from there."""

    def __init__(self, rank, sent):
        super().__init__()
        self.rank, self.size, self.comm, self.sent = rank, 2, self, sent

    def Send(self, data, dest, tag):  # as in MPI
        self.sent.append(np.array(data))

    def Recv(self, data, source, tag):
        data[:] = self.sent.pop(0)


def test_a_part_is_sent_as_bytes_without_pickled_tables():
    part = dmcmc.generate("meeting-scheduling", agents=2, variables_per_agent=4, domain_size=40)
    sent, tables = [], [factor.table for factor in part.factors]
    assert scatter_parts([part], [[], [0]], Channel(0, sent)) == {}
    _, sizes, *_ = sent
    found = scatter_parts(None, [[], [0]], Channel(1, sent))[0]
    assert not sent
    assert (found.variables, found.agents, found.sense) == (part.variables, part.agents, part.sense)
    assert found.owner.tolist() == part.owner.tolist() and found.domains.tolist() == part.domains.tolist()
    for mine, theirs in zip(part.factors, found.factors, strict=True):
        assert (mine.scope, mine.table.dtype) == (theirs.scope, theirs.table.dtype) and theirs.table.flags.aligned
        np.testing.assert_array_equal(mine.table, theirs.table)
    assert sizes[0] < 8000 < sum(table.nbytes for table in tables) <= sizes[1:].sum()
