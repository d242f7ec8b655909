"""The search engine of dmcmc itself, a branch and bound; its code is imported when it is needed."""

from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.samplers.toulbar2.background_search import CostSearchEngine


def engine_thread(memory: int) -> CostSearchEngine:
    """Return the engine, given its memory in bytes."""
    from dmcmc.samplers.branch_and_bound.engine import BranchAndBound

    return BranchAndBound(memory)


def own_engine(name: str | None) -> list[KernelSet]:
    """Return the kernels of an engine, given its name; none for an engine of another package."""
    if name != "branch-and-bound":
        return []
    from dmcmc.samplers.branch_and_bound.engine import compile_search

    return [KernelSet(f"search {name}", compile_search)]
