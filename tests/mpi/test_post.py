"""Messages of any number of agents, in tags that every MPI has, in whatever order they are asked for."""

from dmcmc.mpi.phases import Post

MOST_TAG = 32767  # what the MPI standard promises


class Wire:
    """A communicator that keeps what is sent to the same rank in order."""

    def __init__(self):
        self.sent, self.tags = {}, set()

    def isend(self, message, dest, tag):
        self.tags.add(tag)
        self.sent.setdefault(tag, []).append(message)

    def recv(self, source, tag):
        return self.sent[tag].pop(0)


class Side:
    """One of two ranks on a wire."""

    def __init__(self, rank, wire):
        self.rank, self.size, self.comm = rank, 2, wire


def test_tags_stay_small_for_any_number_of_agents_and_messages_find_their_edges():
    agents, wire = 12_000, Wire()
    owner = tuple(agent % 2 for agent in range(agents))
    here, there = (Post(Side(rank, wire), owner) for rank in (0, 1))
    mine = range(1, agents, 2)
    for kind in ("UTIL", "VALUE", "OUTSIDE"):
        for agent in mine:
            there.send(kind, agent, 0, (kind, agent))
    assert max(wire.tags) <= MOST_TAG and len(wire.tags) == 3
    for kind in ("OUTSIDE", "VALUE", "UTIL"):
        for agent in reversed(mine):
            assert here.receive(kind, agent, 1) == (kind, agent)


def test_messages_within_a_rank_are_handed_over():
    post, message = Post(Side(0, Wire()), (0, 0)), object()
    post.send("UTIL", 1, 0, message)
    assert post.receive("UTIL", 1, 1) is message
