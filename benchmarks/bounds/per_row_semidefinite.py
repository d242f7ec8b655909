"""Measure per-row semidefinite relaxations on a GPU: bounds over time, and the time of each pass of a step.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.per_row_semidefinite [--only NAME] [--seconds S] [--slice T]

FOLDER holds meetings/. The relaxations of all agents run as in a solve, in slices of T seconds: first the relaxation
that all rows of an agent share, then per-row relaxations, including those of rows with further variables fixed. The
cutoff of each row is a tenth below the largest bound of its agent. Prints after each slice the sums over agents of the
largest and of the mean bound of their rows, and the number of nodes;
at the end the time per node of each pass of a step, in a batch of the largest size.
"""

import sys
import time
from collections.abc import Sequence

import numpy as np

import dmcmc
from benchmarks.harness import Report, meeting, options
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite.agent_buffers import AgentBuffers
from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import (
    bound_on_gpu,
    largest_domains,
    load_large_array_kernels,
    load_relaxation_kernels,
)
from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import relaxation_gpu_problem
from dmcmc.inference.bounds.semidefinite.cuda.node_arrays import DeviceNodeArrays
from dmcmc.inference.bounds.semidefinite.node_batch import NodeStarts, RowNodeBatch
from dmcmc.inference.bounds.semidefinite.node_certificates import certificates
from dmcmc.inference.bounds.semidefinite.relaxation import RelaxationRequest, SemidefiniteRelaxation
from dmcmc.inference.bounds.semidefinite.schedules import BRANCH_SCHEDULE
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.threads import cores

NAMES = ("ms_A10_n25_D24", "mu_A10_n25_D24", "ms_A10_n50_D24", "mu_A10_n50_D24")
MAX_PRODUCT_ENTRIES = 1 << 29  # entries of the matrix products of a batch
TIMED_CALLS = 10  # calls of each pass
CUTOFF_SHARE = 0.9  # a row's cutoff as a part of its agent's largest bound
MIN_SECONDS_LEFT = 0.5  # no slice starts with fewer seconds left


def largest(relaxation: SemidefiniteRelaxation) -> float:
    """Return the largest bound of an agent's rows."""
    return float(relaxation.state.bounds.max()) * 2.0**-relaxation.state.layout.scale.shift


def print_progress(relaxations: Sequence[SemidefiniteRelaxation], seconds: float, report: Report) -> None:
    """Print the progress of the relaxations."""
    mean = 0.0
    for relaxation in relaxations:
        unit, bounds = 2.0**-relaxation.state.layout.scale.shift, relaxation.state.bounds
        found = bounds[bounds > MINUS_INFINITY]
        mean += unit * float(found.mean())
    per_row = [relaxation.per_row for relaxation in relaxations]
    report(
        f"  {seconds:6.2f} s  {relaxations[0].steps} steps, {sum(one.nodes for one in per_row)} nodes;"
        f" largest {sum(map(largest, relaxations)):.1f}, mean {mean:.1f}; failed {sum(one.failed for one in per_row)}"
    )


def measure(name: str, seconds: float, slice_seconds: float, report: Report) -> None:
    """Tighten the relaxations of all agents of a problem."""
    report(name)
    local_problems, backend = divide(dmcmc.load(meeting(name))).locals, Backend("cuda", cores())
    start = time.perf_counter()
    for size in largest_domains(local_problems):
        load_relaxation_kernels(size, backend)
    load_large_array_kernels(backend)
    report(f"  kernels and libraries {time.perf_counter() - start:.1f} s")
    relaxations = [SemidefiniteRelaxation(DualState(local, triangles=False)) for local in local_problems]
    start, first = time.perf_counter(), [RelaxationRequest(relaxation, None, None) for relaxation in relaxations]
    bound_on_gpu(first, backend)
    print_progress(relaxations, time.perf_counter() - start, report)
    cutoffs = [np.full(relaxation.state.bounds.size, CUTOFF_SHARE * largest(relaxation)) for relaxation in relaxations]
    while (left := seconds + start - time.perf_counter()) > MIN_SECONDS_LEFT:
        requests = [
            RelaxationRequest(relaxation, None, cutoff)
            for relaxation, cutoff in zip(relaxations, cutoffs, strict=True)
            if not relaxation.exhausted
        ]
        if not requests or not bound_on_gpu(requests, backend, seconds=min(slice_seconds, left)):
            break
        print_progress(relaxations, time.perf_counter() - start, report)
    report("  passes, microseconds per node: " + passes(relaxations))


def passes(relaxations: Sequence[SemidefiniteRelaxation]) -> str:
    """Time each pass of a step, the set-up of a batch and its certificates."""
    arrays = DeviceNodeArrays()
    terms = [task.term for task in (relaxation.prepare() for relaxation in relaxations) if task is not None]
    buffers = AgentBuffers(terms, arrays, 0)
    count = min(512, MAX_PRODUCT_ENTRIES // buffers.shape.m**2)
    agents = np.arange(count) * len(terms) // count
    allowed = np.arange(buffers.shape.d) < buffers.sizes[:, :, None]
    starts = NodeStarts(agents, np.zeros(count, dtype=np.int64), allowed[agents], agents)
    RowNodeBatch(buffers, starts)
    start = time.perf_counter()
    batch = RowNodeBatch(buffers, starts)
    arrays.get(batch.steps.least_bound)
    seconds = {"set-up": time.perf_counter() - start}
    parameters = np.array([BRANCH_SCHEDULE.at(step) for step in range(BRANCH_SCHEDULE.steps)], dtype=np.float32)
    launches = batch.steps.passes(parameters)
    for name, launch in launches._asdict().items():
        launch(0)
        arrays.get(batch.steps.least_bound)
        start = time.perf_counter()
        for _ in range(TIMED_CALLS):
            launch(0)
        arrays.get(batch.steps.least_bound)
        seconds[name] = (time.perf_counter() - start) / TIMED_CALLS
    start = time.perf_counter()
    batch.run(BRANCH_SCHEDULE)
    arrays.get(batch.steps.least_bound)
    seconds["one step of a schedule"] = (time.perf_counter() - start) / BRANCH_SCHEDULE.steps
    certificates(batch)
    start = time.perf_counter()
    certificates(batch)
    seconds["certificate"] = time.perf_counter() - start
    return f"{count} nodes;  " + ", ".join(f"{name} {1e6 * taken / count:.2f}" for name, taken in seconds.items())


def main() -> None:
    """Measure and print."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--slice", type=float, default=5.0)
    given = parser.parse_args()
    problem = relaxation_gpu_problem()
    if problem is not None:
        sys.exit(f"per-row semidefinite relaxations need a GPU: {problem}")
    report = Report(__file__, given, device="cuda")
    for name in NAMES:
        if given.only in name:
            measure(name, given.seconds, given.slice, report)
    report.keep()


if __name__ == "__main__":
    main()
