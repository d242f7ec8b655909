"""Which Gibbs kernels some agents need, and how to load one of them without those agents.

A Gibbs kernel depends on a few properties of the agents (:class:`.gibbs_kernels.GibbsKernelShape`), so many problems
share it. A tiny agent with these properties compiles it, or loads it from disk.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.cuda.batch import batch_key, pack_models
from dmcmc.samplers.cuda.gibbs_kernels import STAGES, GibbsKernelShape
from dmcmc.samplers.cuda.launch import best_launch, gibbs_launcher
from dmcmc.samplers.methods import gibbs
from dmcmc.samplers.model.chain_model import MAX_COMPACT_SCORE, ChainModel, build_model
from dmcmc.samplers.model.rounds import Round

_TINY_SAMPLES = 2  # trials of a pass that only loads a kernel
_ANY_KEY = 0, 0  # key of random bits
_ROWS = 256  # rows of a tiny agent: enough for blocks that copy columns, and the most values that fit a byte


def needed_shapes(sampler: Sampler, models: Sequence[ChainModel], runs: Iterable[int]) -> list[GibbsKernelShape]:
    """Return the Gibbs kernels that sample some agents.

    Parameters
    ----------
    sampler : Sampler
        A sampler that uses the Gibbs kernel.
    models : sequence of ChainModel
        The agents' columns.
    runs : iterable of int
        Chains per row, in several passes: threads may share columns differently.
    """
    shapes = set()
    for key in {batch_key(model) for model in models}:
        members = [model for model in models if batch_key(model) == key]
        for count in runs:
            batch = pack_models(members, [_ANY_KEY] * len(members), count)
            launch = best_launch(batch, count, sampler.exchange, ())
            if launch is not None:
                shapes.add(launch.shape)
    return sorted(shapes)


def shapes_of_domain(size: int) -> list[GibbsKernelShape]:
    """Return the Gibbs kernels for domains with ``size`` values, small utilities and no hard constraints, by stage."""
    shape = pack_models([_tiny_model((size, _ROWS), True, False)], [_ANY_KEY], 1).shape
    return [shape._replace(stage=stage) for stage in STAGES]


def load_gibbs(shape: GibbsKernelShape) -> None:
    """Compile a Gibbs kernel, or load it from disk, by sampling a tiny agent."""
    sampler, runs = gibbs.SAMPLER._replace(exchange=shape.exchange), 2 if shape.exchange else 1
    launcher = gibbs_launcher(sampler, pack_models([tiny_model_of(shape)], [_ANY_KEY], runs), runs, [shape.stage])
    if launcher is not None:
        launcher.run([[Round(np.ones(_TINY_SAMPLES, dtype=np.float32))]], None)


def tiny_model_of(shape: GibbsKernelShape) -> ChainModel:
    """Return the columns of an agent that needs the Gibbs kernel with this shape, for one of its stages."""
    hidden = shape.max_words * (4 if shape.compact else 2) - (0 if shape.no_padding else 1)
    domains = hidden, _ROWS if shape.byte_values else _ROWS + 1
    return _tiny_model(domains, shape.compact, shape.counts_violations)


def _tiny_model(domains: tuple[int, int], compact: bool, forbids: bool) -> ChainModel:
    """Return the columns of an agent with one hidden variable, and with a boundary variable in no factor.

    Parameters
    ----------
    domains
        Sizes of the variables' domains.
    compact
        Whether 16-bit columns hold the utilities.
    forbids
        Whether there is a hard constraint.
    """
    utilities = np.zeros(domains[0], dtype=np.int32)
    utilities[0] = 1 if compact else MAX_COMPACT_SCORE + 1
    if forbids:
        utilities[-1] = forbidden_value(utilities.dtype)
    return build_model(LocalProblem(0, (1,), (0,), (Factor((0,), utilities),), np.array(domains)))
