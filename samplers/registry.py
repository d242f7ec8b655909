"""Local solvers by name: ours, and those that other distributions register under ``dmcmc.samplers``."""

from typing import cast

from dmcmc.inference.runtime.plugins import Plugins
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.contract.protocol import LocalSolver, Sampler
from dmcmc.samplers.methods import annealing, blocks, exact, gibbs, metropolis, metropolis_single, tempering
from dmcmc.samplers.toulbar2 import solver as toulbar2

GROUP = "dmcmc.samplers"
_SAMPLERS = (gibbs, annealing, tempering, metropolis, metropolis_single)


def _accept(loaded: object) -> LocalSolver | None:
    """Take a Sampler, or anything with a LocalSolver's name, summary, check and solve."""
    if isinstance(loaded, Sampler):
        return ChainSolver(loaded)
    whole = all(hasattr(loaded, part) for part in ("name", "summary", "check", "solve"))
    return cast(LocalSolver, loaded) if whole else None


_PLUGINS: Plugins[LocalSolver] = Plugins(
    group=GROUP,
    what="sampler",
    ours={solver.name: solver for solver in (exact.SOLVER, blocks.SOLVER, toulbar2.SOLVER)}
    | {m.SAMPLER.name: ChainSolver(m.SAMPLER) for m in _SAMPLERS},
    accept=_accept,
    expected="is neither a Sampler nor a LocalSolver",
    also=("auto",),
)
names = _PLUGINS.names
get = _PLUGINS.get
