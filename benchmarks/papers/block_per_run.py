"""Time the mapping of chains to threads of the DMCMC paper (Fig. 4) against this project's Gibbs kernel.

    python -m benchmarks.papers.block_per_run [--quick] [--output FILE]

The paper has a block per run and a thread per value. Both kernels sample the same agents at temperature 1: one
interface variable, half of all pairs of variables linked, utilities 1 to 100. Times are from tables on the host to
states on the host, the least of five; the kernels are compiled before. The last two columns compare the means of the
rows' best utilities, which need not be equal, as the random numbers differ. A GPU is needed.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Columns, Report, options, timed
from benchmarks.papers.block_per_run_kernels import block_per_run_kernel
from dmcmc import Factor
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.samplers.cuda.launch import sample_rows
from dmcmc.samplers.methods import gibbs
from dmcmc.samplers.model.chain_model import build_model, chain_key
from dmcmc.samplers.model.schedule import Temperature, one_round

_SIZES = ((10, 24), (25, 24), (10, 96))  # variables of an agent, values
_WORK = ((1, 100), (10, 100), (100, 100), (100, 1000))  # runs, sweeps
_MAX_THREADS = 256  # threads of a block, if a row has no more values
_TABLE = Columns(
    ("variables", ">9d"), ("values", ">6d"), ("R", ">4d"), ("S", ">5d"), ("paper ms", ">9.2f"), ("ours ms", ">8.2f"),
    ("ratio", ">6.1f"), ("paper utility", ">13.1f"), ("our utility", ">11.1f"),
)  # fmt: skip


def agents_of(size: int, domain: int, count: int = 10) -> list[LocalProblem]:
    """Return agents with one boundary variable, half of all pairs linked, utilities 1 to 100."""
    rng = np.random.default_rng(1)
    pairs = [(i, j) for i in range(size) for j in range(i)]
    agents = []
    for agent in range(count):
        chosen = rng.permutation(len(pairs))[: len(pairs) // 2]
        factors = tuple(Factor.of(pairs[k], rng.integers(1, 101, (domain, domain))) for k in chosen)
        agents.append(LocalProblem(agent, (0,), tuple(range(1, size)), factors, np.full(size, domain, dtype=np.int64)))
    return agents


def columns_of(local: LocalProblem) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[Any]]:
    """Return the tables of an agent as the first four arguments of the kernel: ``start`` to ``columns``.

    Parameters
    ----------
    local : LocalProblem
        An agent with binary factors, one interface variable, and domains of one size.
    """
    number = {v: i for i, v in enumerate((*local.hidden, *local.interface))}
    found: list[list[tuple[int, NDArray[Any]]]] = [[] for _ in local.hidden]
    for factor in local.factors:
        a, b = (number[v] for v in factor.scope)
        for own, other, table in ((a, b, factor.table.T), (b, a, factor.table)):
            if own < len(found):
                found[own].append((other, table))
    start = np.cumsum([0, *map(len, found)], dtype=np.int32)
    links = [link for links_of_variable in found for link in links_of_variable]
    values = int(local.domains[local.hidden[0]])
    neighbour = np.array([other for other, _ in links], dtype=np.int32)
    column = np.arange(len(links), dtype=np.int32) * values
    return start, neighbour, column, np.concatenate([table for _, table in links]).astype(np.float32)


def sample_block_per_run(
    local: LocalProblem, runs: int, samples: int, key: tuple[int, int]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sample an agent with the paper's mapping; return the best utility and the best state of each run and row.

    Parameters
    ----------
    local
        As for :func:`columns_of`.
    runs, samples
        Chains per row, and sweeps.
    key
        Key of the random numbers.

    Returns
    -------
    (runs, rows) float32 and (runs, rows, hidden) int32
    """
    from numba import cuda

    arguments = [cuda.to_device(array) for array in columns_of(local)]
    values, hidden = int(local.domains[local.hidden[0]]), len(local.hidden)
    rows_per_block = max(1, min(_MAX_THREADS // values, local.rows))
    utility = cuda.device_array((runs, local.rows), dtype=np.float32)
    states = cuda.device_array((runs, local.rows, hidden), dtype=np.int32)
    grid = runs, -(-local.rows // rows_per_block)
    kernel = block_per_run_kernel(values, rows_per_block, hidden)
    device_key = cuda.to_device(np.array(key, dtype=np.uint64))
    kernel[grid, (values, rows_per_block)](*arguments, device_key, np.int32(samples), utility, states)
    return utility.copy_to_host(), states.copy_to_host()


def utility_of(local: LocalProblem, row: int, state: NDArray[Any]) -> float:
    """Return the utility of hidden values in a row."""
    values = dict(zip((*local.hidden, *local.interface), (*state.tolist(), row), strict=True))
    return float(sum(factor.table[tuple(values[v] for v in factor.scope)] for factor in local.factors))


def compare(local: LocalProblem, runs: int, samples: int) -> list[Any]:
    """Return a row of the table: times and mean utilities of both kernels."""
    key, model = chain_key(1, 0), build_model(local)
    rounds = [one_round(model, samples, Temperature.constant(1.0))]
    (utility, _), paper = timed(lambda: sample_block_per_run(local, runs, samples, key), 5)
    states, ours = timed(lambda: sample_rows(gibbs.SAMPLER, [model], [key], rounds, runs), 5)
    assert states[0] is not None
    found = float(np.mean([utility_of(local, row, state) for row, state in enumerate(states[0])]))
    values = int(local.domains[local.hidden[0]])
    times = 1e3 * paper.least, 1e3 * ours.least
    return [len(local.domains), values, runs, samples, *times, times[0] / times[1], utility.max(0).mean(), found]


def main() -> None:
    """Print the table."""
    parser = options(__file__, __doc__ or "", device="cuda")
    parser.add_argument("--quick", action="store_true", help="only the smallest size and work")
    given = parser.parse_args()
    report = Report(__file__, given)
    report(_TABLE.head)
    for size, values in _SIZES[:1] if given.quick else _SIZES:
        local = agents_of(size, values, 1)[0]
        for runs, samples in _WORK[:1] if given.quick else _WORK:
            report(_TABLE.line(*compare(local, runs, samples)))
    report.keep()


if __name__ == "__main__":
    main()
