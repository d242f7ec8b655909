"""Select the rows of a large interface to sample: those that chains over all of the agent's variables visit.

DMCMC paper, §4: if an interface has too many assignments, only some rows of the table are sampled.
"""

from dataclasses import replace

import numpy as np

from dmcmc.inference.dpop.division import LocalProblem, Rows
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.methods.gibbs import SAMPLER
from dmcmc.samplers.tuning import chains as tuning


def choose_rows(local: LocalProblem, count: int, sampling: Sampling) -> Rows:
    """Return up to ``count`` distinct rows, (rows, boundary variables) int64: the end states of ``count`` short chains.

    The incumbent's row comes first, if there is one. The chains sample the boundary variables together with the hidden
    ones. If chains end in the same rows, rows that differ from these in one variable are added.

    Parameters
    ----------
    local : LocalProblem
        The agent's subproblem.
    count : int
        Number of rows.
    sampling : Sampling
        Settings of the chains.
    """
    n = len(local.domains)
    joint_problem = LocalProblem(
        agent=local.agent,
        interface=(n,),  # belongs to no factor: its values number the chains
        hidden=(*local.interface, *local.hidden),
        factors=local.factors,
        domains=np.append(local.domains, count),
    )
    short = replace(
        sampling, runs=1, samples=tuning.ROW_CHOICE_TRIALS, incumbent=None, seconds=None, progress=lambda _: None
    )
    (chains,) = ChainSolver(SAMPLER).start([joint_problem], short)
    rows: dict[tuple[int, ...], None] = {}
    if sampling.incumbent is not None:
        rows[tuple(sampling.incumbent[list(local.interface)].tolist())] = None
    rows |= dict.fromkeys(map(tuple, chains.states[:, : len(local.interface)].astype(np.int64).tolist()))
    sizes = [int(local.domains[v]) for v in local.interface]
    for row in list(rows):
        for i, size in enumerate(sizes):
            for step in range(1, size):
                if len(rows) >= min(count, local.rows):
                    return np.array(list(rows)[:count], dtype=np.int64)
                rows.setdefault((*row[:i], (row[i] + step) % size, *row[i + 1 :]))
    return np.array(list(rows)[:count], dtype=np.int64)
