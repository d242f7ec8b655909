"""The kernel sets of a GPU: each by what its kernels depend on, so that different problems share them.

The modules of kernels are imported when a set is compiled or loaded.
"""

from collections.abc import Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dmcmc.compilation.kernel_sets import SearchVariant, tiny_search
from dmcmc.inference.bounds.search_rows import load_kernels_of_width
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import load_joins, load_matched
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.samplers.model.chain_model import build_model

if TYPE_CHECKING:
    from dmcmc.samplers.contract.protocol import Sampler
    from dmcmc.samplers.cuda.gibbs_kernels import GibbsKernelShape


def dual_ascent(width: int) -> KernelSet:
    """Return the kernels of the dual ascent and its branch and bound for tables with ``width`` columns."""
    return KernelSet(f"GPU dual ascent, {width} columns", partial(load_kernels_of_width, width))


def relaxations(domain: int, backend: Backend) -> KernelSet:
    """Return the kernels of semidefinite relaxations whose largest domain has ``domain`` values."""
    return KernelSet(f"GPU relaxations, {domain} values", partial(_load_relaxation, domain, backend))


def large_relaxations(backend: Backend) -> KernelSet:
    """Return the kernels of array libraries that semidefinite relaxations use for large arrays."""
    return KernelSet("GPU relaxations, large arrays", partial(_load_large_relaxation, backend))


def search(variant: SearchVariant) -> KernelSet:
    """Return the kernels of the local search's chains."""
    return KernelSet(f"GPU search {variant.text}", partial(_load_search, variant))


def gibbs_sampling(shape: "GibbsKernelShape") -> KernelSet:
    """Return the kernel of Gibbs sampling with some compile-time parameters."""
    return KernelSet(f"GPU Gibbs sampling {' '.join(map(str, map(int, shape)))}", partial(_load_gibbs, shape))


def gibbs_sampling_of(sampler: "Sampler", locals_: Sequence[LocalProblem], runs: Set[int]) -> list[KernelSet]:
    """Return the kernels with which a sampler draws the hidden variables of agents, with some numbers of runs a row."""
    from dmcmc.samplers.cuda.launch import needed_shapes

    return [gibbs_sampling(shape) for shape in needed_shapes(sampler, [build_model(local) for local in locals_], runs)]


def joins(dtype: np.dtype[Any]) -> KernelSet:
    """Return the kernels of exact elimination with a number type."""
    return KernelSet(f"GPU elimination {dtype}", partial(load_joins, dtype))


def function_filtering(arithmetic: Arithmetic) -> KernelSet:
    """Return the kernels that extend the rows of function filtering."""
    return KernelSet(f"GPU function filtering {arithmetic.dtype}", partial(_load_filtering, arithmetic))


def matched_mini_buckets(dtype: np.dtype[Any]) -> KernelSet:
    """Return the kernels of mini-buckets whose max-marginals are matched, with a number type."""
    return KernelSet(f"GPU mini-buckets {dtype}", partial(load_matched, dtype))


def _load_search(variant: SearchVariant) -> None:
    """Load the kernels of the local search's chains."""
    from dmcmc.samplers.local_search.cuda.chains import load_kernels

    load_kernels(tiny_search(variant).ascent.graph)


def _load_gibbs(shape: "GibbsKernelShape") -> None:
    """Load a kernel of Gibbs sampling."""
    from dmcmc.samplers.cuda.launch import load_gibbs

    load_gibbs(shape)


def _load_filtering(arithmetic: Arithmetic) -> None:
    """Load the kernels of function filtering."""
    from dmcmc.inference.sparse.cuda.extend_rows import load_kernels

    load_kernels(arithmetic)


def _load_relaxation(domain: int, backend: Backend) -> None:
    """Load the kernels of semidefinite relaxations for a size of domains."""
    from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import load_relaxation_kernels

    load_relaxation_kernels(domain, backend)


def _load_large_relaxation(backend: Backend) -> None:
    """Load the kernels of array libraries for large arrays."""
    from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import load_large_array_kernels

    load_large_array_kernels(backend)
