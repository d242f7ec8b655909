"""Measure semidefinite relaxations of all agents on a GPU: time per step, equality with the CPU, and bounds.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.semidefinite [--only NAME] [--steps N] [--output FILE]

FOLDER holds meetings/. ``start`` is the time to prepare the descents of all agents on all cores, ``set-up`` the time
to lay them out on the device. ``differ`` is the largest relative difference of the first moments (Adam's m) between
CPU and GPU after one step. A step is timed with matrix products in single precision and on tensor cores (TF32), and so
are its products and its pass over pairs alone. The descents then continue in single precision, in TF32, and in TF32
first, single precision later, and print the sums over agents of the largest and of the mean proven bound of their
rows, and the seconds of the steps so far.
"""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

import dmcmc
from benchmarks.harness import Report, meeting, options
from dmcmc.inference.bounds.semidefinite.certificate import certified_bounds
from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import DeviceArrays, relaxation_gpu_problem
from dmcmc.inference.bounds.semidefinite.descent import Descent, DescentPoint, Target, step_parameters
from dmcmc.inference.bounds.semidefinite.descent_batch import LOW_PRECISION_STEPS, DescentBatch
from dmcmc.inference.bounds.semidefinite.numpy_arrays import NumpyArrays
from dmcmc.inference.bounds.semidefinite.utility_matrix import build_utility_matrix
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.runtime.matrix_products import products_on_one_thread
from dmcmc.inference.runtime.threads import cores, run_parallel

PrintLine = Callable[[str], None]

NAMES = ("ms_A10_n50_D24", "mu_A10_n50_D24")
TIMED_STEPS = 20  # steps that are timed
ALL_STEPS = 1 << 30
PRECISIONS = {
    0: "single",
    LOW_PRECISION_STEPS: "both  ",
    ALL_STEPS: "TF32  ",
}  # by the number of first steps whose products are in low precision


def on_all_cores(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return the results of tasks that run in parallel on all cores."""
    results: list[Any] = [None] * len(tasks)

    def run(i: int) -> None:
        results[i] = tasks[i]()

    with products_on_one_thread():
        run_parallel([partial(run, i) for i in range(len(tasks))], cores())
    return results


def copy_of(descent: Descent) -> Descent:
    """Return an independent copy of the state of a descent."""
    found = object.__new__(Descent)
    found.__dict__.update(descent.__dict__, trial=[], point=descent.point.copy())
    found.first_moment, found.second_moment = descent.first_moment.copy(), descent.second_moment.copy()
    return found


def rows_of(descent: Descent) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the numbers of all rows of the descent's agent."""
    return np.arange(int(np.prod(descent.matrix.shape)), dtype=np.int64)


def bounds_of(descent: Descent, point: DescentPoint) -> Any:
    """Return the bounds in utilities that a point proves for all rows, or None if it proves none."""
    found = certified_bounds(descent.matrix, *descent.scaled(point), rows_of(descent))
    return None if found is None else found / 2.0**descent.matrix.scale.shift


def seconds_of(work: Callable[[int], Any], arrays: DeviceArrays, times: int = TIMED_STEPS) -> float:
    """Return the seconds per call of work on the device."""
    work(0)
    arrays.module.cuda.get_current_stream().synchronize()
    start = time.perf_counter()
    for _ in range(times):
        work(0)
    arrays.module.cuda.get_current_stream().synchronize()
    return (time.perf_counter() - start) / times


def time_parts(descents: Sequence[Descent], targets: Sequence[Target], tf32_steps: int, print_line: PrintLine) -> None:
    """Time a step and its parts."""
    arrays, agents = DeviceArrays(), len(descents)
    batch = DescentBatch([copy_of(d) for d in descents], targets, arrays, tf32_steps)
    parameters = arrays.put(np.array([[step_parameters(0)] * agents], dtype=np.float32))
    steps, low_precision = batch.steps, tf32_steps > 0
    smooth, moves = steps._launches(parameters)
    hidden, gradient = steps.iterates[0][0], steps._gradients[0]
    first_product = seconds_of(lambda _: arrays.product(hidden, hidden, steps._products, True, low_precision), arrays)
    second_product = seconds_of(
        lambda _: arrays.product(steps._weights, hidden, gradient, False, low_precision), arrays
    )
    pairs = seconds_of(smooth, arrays)
    evaluate = seconds_of(lambda _: steps._evaluate(smooth, parameters, 0, low_precision), arrays)
    move = seconds_of(lambda _: [one(0) for one in moves], arrays)
    start = time.perf_counter()
    for _ in range(TIMED_STEPS):
        steps._evaluate(smooth, parameters, 0, low_precision)
    launched = (time.perf_counter() - start) / TIMED_STEPS
    arrays.get(batch.steps.least_excess)
    rate = 4 * agents * batch.shape.n**2 * batch.shape.r / (first_product + second_product) / 1e12
    print_line(
        f"  {PRECISIONS[tf32_steps]} products {1e3 * first_product:.3f} + {1e3 * second_product:.3f} ms"
        f" ({rate:.0f} T/s)  pairs {1e3 * pairs:.3f}  evaluation {1e3 * evaluate:.3f}"
        f" (launched in {1e3 * launched:.3f})"
        f"  move {1e3 * move:.3f}"
        f"  step {1e3 * (evaluate + move):.3f} ms of {agents} agents"
    )


def compare(descents: Sequence[Descent], targets: Sequence[Target], print_line: PrintLine) -> None:
    """Make one step, then 60, of one agent on the CPU and on the GPU, and print the differences."""
    for tf32_steps in PRECISIONS:
        cpu, gpu = copy_of(descents[0]), [copy_of(d) for d in descents]
        DescentBatch([cpu], targets[:1], NumpyArrays(cpu.matrix)).run(lambda made: 1 - made)
        DescentBatch(gpu, targets, DeviceArrays(), tf32_steps).run(lambda made: 1 - made)
        pairs = list(zip(cpu.first_moment, gpu[0].first_moment, strict=True))
        differ = max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-9)) for a, b in pairs)
        (point,) = DescentBatch([cpu], targets[:1], NumpyArrays(cpu.matrix)).run(lambda made: 59 - made)
        other = DescentBatch(gpu, targets, DeviceArrays(), tf32_steps).run(lambda made: 59 - made)[0]
        ours, theirs = (bounds_of(cpu, p).max() for p in (point, other))
        after = f"one agent after 60 steps {ours:g} on the CPU, {theirs:g} on the GPU"
        print_line(f"  {PRECISIONS[tf32_steps]} differ {differ:.1e}; {after}")


def request_steps(steps: int) -> Callable[[int], int]:
    """Return a function that requests ``steps`` steps in total, at most 50 at a time."""
    return lambda made: min(50, steps - made)


def descend(descents: Sequence[Descent], targets: Sequence[Target], steps: int, print_line: PrintLine) -> None:
    """Descend, and print the proven bounds at some numbers of steps."""
    stops: list[int] = [0, *(60 << i for i in range(12) if 60 << i < steps), steps]
    for tf32_steps in PRECISIONS:
        arrays, seconds = DeviceArrays(), 0.0
        copies = [copy_of(d) for d in descents]
        for before, stop in pairwise(stops):
            batch = DescentBatch(copies, targets, arrays, tf32_steps)
            arrays.get(batch.steps.least_excess)
            start = time.perf_counter()
            points = batch.run(request_steps(stop - before))
            seconds += time.perf_counter() - start
            found = on_all_cores([partial(bounds_of, d, p) for d, p in zip(copies, points, strict=True)])
            highest, mean = sum(float(one.max()) for one in found), sum(float(one.mean()) for one in found)
            print_line(
                f"  {PRECISIONS[tf32_steps]}: {stop:5d} steps {seconds:7.3f} s  Σ max {highest:.6g}  Σ mean {mean:.6g}"
            )


def measure(name: str, steps: int, print_line: PrintLine) -> None:
    """Measure one problem."""
    print_line(name)
    networks = [build_utility_matrix(local) for local in divide(dmcmc.load(meeting(name))).locals]
    start = time.perf_counter()
    descents = on_all_cores([partial(Descent, network) for network in networks])
    ready = time.perf_counter()
    targets = [
        Target(d.network.digits(rows_of(d)), np.zeros(rows_of(d).size)) for d in descents
    ]  # the excess of all rows over a cutoff of 0
    arrays = DeviceArrays()
    batch = DescentBatch(descents, targets, arrays)
    arrays.get(batch.steps.least_excess)
    end = time.perf_counter()
    shape = batch.shape
    print_line(f"  {shape}: {shape.bytes / 2**20:.0f} MiB; start {ready - start:.3f} s, set-up {end - ready:.3f} s")
    del batch
    compare(descents, targets, print_line)
    for tf32_steps in (0, ALL_STEPS):
        time_parts(descents, targets, tf32_steps, print_line)
    descend(descents, targets, steps, print_line)
    arrays.close()


def main() -> None:
    """Measure and print."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--steps", type=int, default=4000)
    given = parser.parse_args()
    if relaxation_gpu_problem() is not None:
        sys.exit(relaxation_gpu_problem())
    report = Report(__file__, given, device="cuda")
    for name in NAMES:
        if given.only in name:
            measure(name, given.steps, report)
    report.keep()


if __name__ == "__main__":
    main()
