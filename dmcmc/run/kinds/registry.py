"""The kinds of work, in the order in which they are carried out."""

from collections.abc import Sequence

from dmcmc.run.controller.offer import Offer
from dmcmc.run.kinds.beside import SearchEngine
from dmcmc.run.kinds.bound import Bound
from dmcmc.run.kinds.branch import Branch
from dmcmc.run.kinds.combine import Combine
from dmcmc.run.kinds.eliminate import Eliminate
from dmcmc.run.kinds.filter import Filter
from dmcmc.run.kinds.gpu_search import GpuSearch
from dmcmc.run.kinds.lift import SemidefiniteLift
from dmcmc.run.kinds.protocol import Kind, Standing
from dmcmc.run.kinds.sample import Sample
from dmcmc.run.kinds.search import Search

OF_AGENTS: Sequence[Kind] = (Eliminate(), Sample(), SemidefiniteLift(), Bound(), Branch(), Filter())  # on their rank
OF_ALL: Sequence[Kind] = (Search(), Combine(), SearchEngine(), GpuSearch())  # by all ranks together


def offers_of(standing: Standing) -> tuple[Offer, ...]:
    """Return all that a rank could do."""
    return tuple(offer for kind in (*OF_AGENTS, *OF_ALL) for offer in kind.offers(standing))
