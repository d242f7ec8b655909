"""Compare block moves of an agent's rows on a GPU with those on all cores: rows at equal time, and cells per second.

    python -m benchmarks.sampling.gpu_blocks [--networks 3] [--seconds 3] [--threads N] [--output FILE]

The networks are those of ``benchmarks.sampling.blocks``; INTERFACE variables belong to another agent, so there are
VALUES ** INTERFACE rows. For each row, the best state that annealing with block moves found is compared; the seconds
are those of all rows together.
"""

import os
import time

import numpy as np

from benchmarks.harness import Report, options
from benchmarks.sampling.blocks import VALUES, VARIABLES, network
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.problem import choose_arithmetic
from dmcmc.inference.runtime.device import shared_device
from dmcmc.samplers.blocks.cuda import chains
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.methods import blocks
from dmcmc.samplers.methods.block_chains import agent_graph

INTERFACE = 5
MAX_SAMPLES = 10**6  # samples: more than fit into the time


def agent_of(seed: int) -> LocalProblem:
    """Return a network as an agent's local problem; its first variables belong to another agent."""
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
    report = Report(__file__, given, rows=str(VALUES**INTERFACE), threads=str(given.threads))
    backends = {f"{given.threads} threads": Backend("cpu", given.threads), "GPU": Backend("cuda", given.threads)}
    report(
        f"{'network':8s} {'where':12s} {'limit s':>8s} {'time s':>8s} {'feasible rows':>14s} {'mean if in both':>18s}"
    )
    for seed in range(given.networks):
        local, found = agent_of(seed), {}
        arithmetic = choose_arithmetic(local.factors)
        for name, backend in backends.items():
            sampling = Sampling(arithmetic, backend=backend, samples=MAX_SAMPLES, seconds=given.seconds)
            if seed == 0:  # compile the kernels and open the GPU
                blocks.SOLVER.load([local], sampling)
                blocks.SOLVER.solve([local], Sampling(arithmetic, backend=backend, samples=MAX_SAMPLES, seconds=0.2))
            start = time.perf_counter()
            table = blocks.SOLVER.solve([local], sampling)[0].lower[0].values.reshape(-1)
            found[name] = table, time.perf_counter() - start
        feasible_in_all = np.logical_and.reduce([table > arithmetic.forbidden_below for table, _ in found.values()])
        for name, (table, seconds) in found.items():
            feasible = int((table > arithmetic.forbidden_below).sum())
            mean = float(np.mean(table[feasible_in_all])) if feasible_in_all.any() else float("nan")
            report(f"{seed:<8d} {name:12s} {given.seconds:8.2f} {seconds:8.2f} {feasible:14d} {mean:18.6g}")
    local = agent_of(0)
    graph = agent_graph(local)
    states = np.zeros((local.rows, graph.domains.size), dtype=np.int32)
    device = chains.DeviceBlockChains(graph, np.zeros(2, dtype=np.uint64), states, np.arange(graph.free))
    moves = [move for _ in range(64) for move in device._choose()]
    for temperature in (0.0, 1.0):
        device._run(moves[:1], [temperature], False)
        shared_device().synchronize()
        start = time.perf_counter()
        device._run(moves, [temperature] * len(moves), False)
        shared_device().synchronize()
        seconds = time.perf_counter() - start
        cells = device.chains * sum(cells for _, _, cells in moves)
        draws = device.chains * sum(int(code[0]) for code, _, _ in moves)
        report(
            f"temperature {temperature:g}: {device.chains} chains, {len(moves)} moves in {seconds:.3f} s:"
            f" {cells / seconds:.3g} cells/s, {draws / seconds:.3g} draws/s"
        )
    report.keep()


if __name__ == "__main__":
    main()
