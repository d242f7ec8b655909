"""The improvers, in the order in which they do their work, and the proposals of all of them."""

from collections.abc import Sequence

from dmcmc.run.improvers.background_search import ExternalSearchImprover
from dmcmc.run.improvers.branch_and_bound import BranchAndBoundImprover
from dmcmc.run.improvers.exact_elimination import EliminationImprover
from dmcmc.run.improvers.function_filtering import FilteringImprover
from dmcmc.run.improvers.gpu_chains import GpuChainsImprover
from dmcmc.run.improvers.local_search import LocalSearchImprover
from dmcmc.run.improvers.protocol import Improver, RankState
from dmcmc.run.improvers.recombine import RecombinationImprover
from dmcmc.run.improvers.sampling import SamplingImprover
from dmcmc.run.improvers.semidefinite import SemidefiniteImprover
from dmcmc.run.improvers.tighten_bound import BoundImprover
from dmcmc.run.scheduler.proposal import Proposal

AGENT_IMPROVERS: Sequence[Improver] = (
    EliminationImprover(),
    SamplingImprover(),
    SemidefiniteImprover(),
    BoundImprover(),
    BranchAndBoundImprover(),
    FilteringImprover(),
)  # agents' tables, on their ranks
GLOBAL_IMPROVERS: Sequence[Improver] = (
    LocalSearchImprover(),
    RecombinationImprover(),
    ExternalSearchImprover(),
    GpuChainsImprover(),
)  # the whole problem, by all ranks together


def proposals_of(state: RankState) -> tuple[Proposal, ...]:
    """Return the proposals of all improvers that have their kernels, for one rank."""
    ready = [improver for improver in (*AGENT_IMPROVERS, *GLOBAL_IMPROVERS) if state.is_ready(improver.name)]
    return tuple(proposal for improver in ready for proposal in improver.proposals(state))
