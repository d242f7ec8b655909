"""The kinds of work, in the order in which they are carried out."""

from collections.abc import Sequence

from dmcmc.run.improvers.background_search import SearchEngine
from dmcmc.run.improvers.branch_and_bound import Branch
from dmcmc.run.improvers.exact_elimination import Eliminate
from dmcmc.run.improvers.function_filtering import Filter
from dmcmc.run.improvers.gpu_chains import GpuSearch
from dmcmc.run.improvers.local_search import Search
from dmcmc.run.improvers.protocol import Kind, Standing
from dmcmc.run.improvers.recombine import Combine
from dmcmc.run.improvers.sampling import Sample
from dmcmc.run.improvers.semidefinite import SemidefiniteLift
from dmcmc.run.improvers.tighten_bound import Bound
from dmcmc.run.scheduler.proposal import Offer

OF_AGENTS: Sequence[Kind] = (Eliminate(), Sample(), SemidefiniteLift(), Bound(), Branch(), Filter())  # on their rank
OF_ALL: Sequence[Kind] = (Search(), Combine(), SearchEngine(), GpuSearch())  # by all ranks together


def offers_of(standing: Standing) -> tuple[Offer, ...]:
    """Return all that a rank could do."""
    return tuple(offer for kind in (*OF_AGENTS, *OF_ALL) for offer in kind.offers(standing))
