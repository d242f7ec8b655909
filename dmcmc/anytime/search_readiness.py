"""The kernels of a rank's local search, which are compiled in the background while the run goes on."""

from collections.abc import Callable
from functools import cached_property

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.mpi.world import World
from dmcmc.run.compilation import block_move_kernel_sets, kernel_sets, large_problem_kernel_sets
from dmcmc.run.compilation.kernel_sets import KernelSet, SearchVariant
from dmcmc.run.compilation.kernel_supply import KernelSupply
from dmcmc.solving.planning.divided_problem import DividedProblem


class SearchKernels:
    """Which kernels of the local search are compiled.

    Parameters
    ----------
    parts
        The divided problem as this rank knows it.
    world
        The ranks.
    supply
        The kernels of the run.

    Attributes
    ----------
    has_first : bool
        Whether all ranks that search had the kernels of the first search at the start, or needed them at once.
    """

    def __init__(self, parts: DividedProblem, world: World, supply: KernelSupply) -> None:
        self._parts, self._world, self._supply = parts, world, supply
        self._searches = world.rank == 0 or not parts.scattered
        self.has_first = all(world.allgather(self._may_search_at_once()))

    def _may_search_at_once(self) -> bool:
        """Return whether this rank can begin the first search with what is compiled."""
        dense = self._parts.original.dense
        first_kernels = kernel_sets.first_search(self._parts.problem.flat.data.dtype, dense)
        return not self._searches or not self._parts.original.tabular or self._supply.is_ready(first_kernels)

    @cached_property
    def _variant(self) -> SearchVariant:
        """The variant of the kernels of the local search; only ranks that search know it."""
        return SearchVariant.of(self._parts)

    def may_move_blocks(self) -> bool:
        """Return whether this rank has the kernels of block moves."""
        return self._is_ready(block_move_kernel_sets.block_moves)

    def may_search_constraints(self) -> bool:
        """Return whether this rank has the kernels of the search on global constraints, if it searches."""
        return not self._searches or self.has_constraint_search()

    def has_constraint_search(self) -> bool:
        """Return whether this rank has the kernels of the search on global constraints."""
        return self._supply.is_ready(kernel_sets.constraint_search())

    def has_first_of(self, problem: Problem) -> bool:
        """Return whether this rank has the kernels of the first search of a problem as given."""
        return self._supply.is_ready(kernel_sets.first_search_of(problem))

    def request(self, engine: str | None, searches: bool, violated: bool) -> float:
        """Compile the kernels of searches in the background; return the seconds that do not count as run time.

        Parameters
        ----------
        engine
            Name of the search engine for the whole problem; None without one.
        searches
            Whether this rank has a local search.
        violated
            Whether its best assignment breaks hard constraints.
        """
        sets = large_problem_kernel_sets.own_engine(engine)
        if searches:
            sets += large_problem_kernel_sets.local_search(self._parts)
            if violated:
                sets.append(kernel_sets.constraint_search())
        if self._parts.timed:
            sets.append(large_problem_kernel_sets.rates())
        return self._supply.request(*sets)

    def _is_ready(self, kernels_of: Callable[[SearchVariant], KernelSet]) -> bool:
        """Return whether this rank has kernels of the local search."""
        return not self._searches or self._supply.is_ready(kernels_of(self._variant))

    def chains_are_ready(self) -> bool:
        """Return whether all ranks have the kernels of the chains and of the first search; called by all ranks."""
        return all(self._world.allgather(self._is_ready(kernel_sets.chains) and self._is_ready(_first_search)))

    def wait_for_chains(self, stop: Deadline) -> float:
        """Wait for the kernels of the chains; return the seconds that do not count as run time.

        Raises
        ------
        OutOfTime
            If the deadline passes first.
        """
        sets = [_first_search(self._variant), kernel_sets.chains(self._variant)] if self._searches else []
        return self._supply.wait(self._world.bcast(sets), stop)

    def chains(self) -> KernelSet:
        """Return the kernels of the chains of rank 0; called by all ranks."""
        chains: KernelSet = self._world.bcast(kernel_sets.chains(self._variant) if self._searches else None)
        return chains


def _first_search(variant: SearchVariant) -> KernelSet:
    """Return the kernels that find the first incumbent and make answers 1-optimal."""
    return kernel_sets.first_search(variant.dtype, variant.dense, variant.constrained)
