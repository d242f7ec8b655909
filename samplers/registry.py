"""Samplers and searches by name.

Local solvers by name: built-in ones, and plug-ins that are registered under ``dmcmc.samplers``.

The search engine of dmcmc itself, a branch and bound; its code is imported when it is needed.
"""

from typing import cast

from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.plugins import Plugins
from dmcmc.samplers.branch_and_bound.engine import BranchAndBound, compile_search
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.contract.protocol import LocalSolver, Sampler
from dmcmc.samplers.cp_sat import solver as cp_sat
from dmcmc.samplers.methods import annealing, blocks, exact, gibbs, metropolis, metropolis_single, tempering
from dmcmc.samplers.toulbar2 import solver as toulbar2
from dmcmc.samplers.toulbar2.background_search import CostSearchEngine

GROUP = "dmcmc.samplers"
_SAMPLERS = (gibbs, annealing, tempering, metropolis, metropolis_single)


def _accept(loaded: object) -> LocalSolver | None:
    """Return the solver of a Sampler or of an object with a LocalSolver's name, summary, check and solve; else None."""
    if isinstance(loaded, Sampler):
        return ChainSolver(loaded)
    is_solver = all(hasattr(loaded, name) for name in ("name", "summary", "check", "solve"))
    return cast(LocalSolver, loaded) if is_solver else None


_PLUGINS: Plugins[LocalSolver] = Plugins(
    group=GROUP,
    noun="sampler",
    built_in={solver.name: solver for solver in (exact.SOLVER, blocks.SOLVER, toulbar2.SOLVER, cp_sat.SOLVER)}
    | {m.SAMPLER.name: ChainSolver(m.SAMPLER) for m in _SAMPLERS},
    accept=_accept,
    expected="is neither a Sampler nor a LocalSolver",
    other_names=("auto",),
)
names = _PLUGINS.names
get = _PLUGINS.get


def name_of_kernel(name: str) -> str:
    """Return the name of a solver, or of its compiled chains, which changes with the source of the sampler."""
    solver = get(name)
    return solver.kernel_name if isinstance(solver, ChainSolver) else name


def engine_thread(memory: int) -> CostSearchEngine:
    """Return the engine, given its memory in bytes."""
    return BranchAndBound(memory)


def own_engine(name: str | None) -> list[KernelSet]:
    """Return the kernels of an engine, given its name; none for an engine of another package."""
    return [KernelSet(f"search {name}", compile_search)] if name == "branch-and-bound" else []
