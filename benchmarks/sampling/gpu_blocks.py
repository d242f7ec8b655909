"""Block moves of an agent's rows on a GPU beside all cores: rows at equal time, and cells joined in a second.

    python -m benchmarks.sampling.gpu_blocks [--networks 3] [--seconds 3] [--threads N] [--output FILE]

The networks of :mod:`.blocks`, with INTERFACE variables outside of the agent: VALUES ** INTERFACE rows. Each row's best
state is what annealing with block moves found in so many seconds for all rows together.
"""

import os
import time

import numpy as np

from benchmarks.harness import Report, options
from benchmarks.sampling.blocks import VALUES, VARIABLES, network
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import choose_arithmetic
from dmcmc.inference.runtime.device import shared_device
from dmcmc.samplers.blocks.cuda import chains
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.methods import blocks
from dmcmc.samplers.methods.block_chains import graph_of

INTERFACE = 5
LONG = 10**6  # samples: more than there is time for


def agent_of(seed: int) -> LocalProblem:
    """Return a network as an agent's local problem; its first variables are another's."""
    problem = network(seed)
    return LocalProblem(
        0, tuple(range(INTERFACE)), tuple(range(INTERFACE, VARIABLES)), problem.factors, problem.domains
    )


def main() -> None:
    """Print and write the tables."""
    parser = options(__file__, __doc__)
    parser.add_argument("--networks", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    say = Report(__file__, given, rows=str(VALUES**INTERFACE), threads=str(given.threads))
    backends = {f"{given.threads} threads": Backend("cpu", given.threads), "GPU": Backend("cuda", given.threads)}
    say(f"{'network':8s} {'where':12s} {'asked s':>8s} {'took s':>8s} {'feasible rows':>14s} {'mean of all such':>18s}")
    for seed in range(given.networks):
        local, found = agent_of(seed), {}
        arithmetic = choose_arithmetic(local.factors)
        for name, backend in backends.items():
            sampling = Sampling(arithmetic, backend=backend, samples=LONG, seconds=given.seconds)
            if seed == 0:  # compiled and opened
                blocks.SOLVER.load([local], sampling, LONG**2)
                blocks.SOLVER.solve([local], Sampling(arithmetic, backend=backend, samples=LONG, seconds=0.2))
            begun = time.perf_counter()
            table = blocks.SOLVER.solve([local], sampling)[0].lower[0].values.reshape(-1)
            found[name] = table, time.perf_counter() - begun
        shared = np.logical_and.reduce([table > arithmetic.threshold for table, _ in found.values()])
        for name, (table, took) in found.items():
            good = int((table > arithmetic.threshold).sum())
            mean = float(np.mean(table[shared])) if shared.any() else float("nan")
            say(f"{seed:<8d} {name:12s} {given.seconds:8.2f} {took:8.2f} {good:14d} {mean:18.6g}")
    local = agent_of(0)
    graph = graph_of(local)
    first = np.zeros((local.rows, graph.domains.size), dtype=np.int32)
    device = chains.DeviceBlocks(graph, np.zeros(2, dtype=np.uint64), first, np.arange(graph.free))
    moves = [move for _ in range(64) for move in device._choose()]
    for heat in (0.0, 1.0):
        device._run(moves[:1], [heat], False)
        shared_device().synchronize()
        begun = time.perf_counter()
        device._run(moves, [heat] * len(moves), False)
        shared_device().synchronize()
        took = time.perf_counter() - begun
        cells = device.chains * sum(cells for _, _, cells in moves)
        draws = device.chains * sum(int(code[0]) for code, _, _ in moves)
        say(
            f"temperature {heat:g}: {device.chains} chains, {len(moves)} moves in {took:.3f} s:"
            f" {cells / took:.3g} cells/s, {draws / took:.3g} draws/s"
        )
    say.keep()


if __name__ == "__main__":
    main()
