"""The search engines of dmcmc itself, by name; their code is imported when it is needed."""

from collections.abc import Callable
from functools import partial

from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.samplers.toulbar2.background_search import CostSearchEngine


def engine_thread(name: str | None, device: str) -> Callable[[int], CostSearchEngine]:
    """Return a function that creates an engine, given its memory in bytes.

    Parameters
    ----------
    name : {"branch-and-bound", "and-or"}
        Name of the engine.
    device : {"auto", "cpu", "cuda"}
        Where an AND/OR search computes its messages.
    """
    if name == "and-or":
        from dmcmc.samplers.and_or.engine import AndOrSearch

        return partial(AndOrSearch, device=device)
    from dmcmc.samplers.branch_and_bound.engine import BranchAndBound

    return BranchAndBound


def own_engine(name: str | None) -> list[KernelSet]:
    """Return the kernels of an engine, given its name; none for an engine of another package."""
    if name == "and-or":
        from dmcmc.samplers.and_or.engine import compile_search as compile_and_or

        return [KernelSet(f"search {name}", compile_and_or)]
    if name == "branch-and-bound":
        from dmcmc.samplers.branch_and_bound.engine import compile_search as compile_branching

        return [KernelSet(f"search {name}", compile_branching)]
    return []
