"""Semidefinite lifts of all agents on a GPU: milliseconds of a step, equality with the CPU's, bounds by steps.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.lifts [--only NAME] [--steps N] [--output FILE]

FOLDER holds meetings/. `start` is what descents begin with, all agents on all cores, `set-up` laying them out on the
device. `differ` is by how much the means of slopes after one step are not the CPU's, next to their largest. A step is
timed with products in single precision and on tensor cores (TF32), beside its products and its pass over pairs alone.
Then descents go on, with either and with first the one and then the other: Σ over agents of the largest and of the mean
of their rows' proven bounds, and the seconds of steps so far.
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
from dmcmc.inference.bounds.semidefinite.certificate import certified
from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import DeviceArrays, lift_problem
from dmcmc.inference.bounds.semidefinite.descent import Descent, Point, Target, schedule
from dmcmc.inference.bounds.semidefinite.descent_batch import ROUGH, Batch
from dmcmc.inference.bounds.semidefinite.utility_matrix import lay_out
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.runtime.matrix_products import products_on_one_thread
from dmcmc.inference.runtime.threads import cores, run_parallel

Say = Callable[[str], None]

NAMES = ("ms_A10_n50_D24", "mu_A10_n50_D24")
FEW = 20  # steps that are timed
ALWAYS = 1 << 30
KINDS = {0: "single", ROUGH: "both  ", ALWAYS: "TF32  "}  # by the steps in which products may be rough


def on_all_cores(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return what tasks return."""
    found: list[Any] = [None] * len(tasks)

    def keep(i: int) -> None:
        found[i] = tasks[i]()

    with products_on_one_thread():
        run_parallel([partial(keep, i) for i in range(len(tasks))], cores())
    return found


def copy_of(descent: Descent) -> Descent:
    """Return a descent that is where another one is, and goes its own way."""
    found = object.__new__(Descent)
    found.__dict__.update(descent.__dict__, trial=[], point=descent.point.copy())
    found.means, found.squares = descent.means.copy(), descent.squares.copy()
    return found


def rows_of(descent: Descent) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return all rows of its agent."""
    return np.arange(int(np.prod(descent.network.shape)), dtype=np.int64)


def bounds_of(descent: Descent, point: Point) -> Any:
    """Return what a point proves of all rows, as utilities."""
    found = certified(descent.network, *descent.scaled(point), rows_of(descent))
    return None if found is None else found / 2.0**descent.network.scale.shift


def seconds_of(work: Callable[[int], Any], arrays: DeviceArrays, times: int = FEW) -> float:
    """Return the seconds of work that the device does."""
    work(0)
    arrays.module.cuda.get_current_stream().synchronize()
    start = time.perf_counter()
    for _ in range(times):
        work(0)
    arrays.module.cuda.get_current_stream().synchronize()
    return (time.perf_counter() - start) / times


def time_parts(descents: Sequence[Descent], targets: Sequence[Target], rough: int, out: Say) -> None:
    """Time a step and its parts."""
    arrays, agents = DeviceArrays(), len(descents)
    batch = Batch([copy_of(d) for d in descents], targets, arrays, rough)
    words = arrays.put(np.array([[schedule(0)] * agents], dtype=np.float32))
    steps, coarse = batch.steps, rough > 0
    smooth, moves = steps._launches(words)
    hidden, slope = steps.points[0][0], steps._slopes[0]
    first = seconds_of(lambda _: arrays.product(hidden, hidden, steps._products, True, coarse), arrays)
    second = seconds_of(lambda _: arrays.product(steps._weights, hidden, slope, False, coarse), arrays)
    pairs, look = seconds_of(smooth, arrays), seconds_of(lambda _: steps._look(smooth, words, 0, coarse), arrays)
    move = seconds_of(lambda _: [one(0) for one in moves], arrays)
    start = time.perf_counter()
    for _ in range(FEW):
        steps._look(smooth, words, 0, coarse)
    asked = (time.perf_counter() - start) / FEW
    arrays.get(batch.steps.least)
    speed = 4 * agents * batch.shape.n**2 * batch.shape.r / (first + second) / 1e12
    out(
        f"  {KINDS[rough]} products {1e3 * first:.3f} + {1e3 * second:.3f} ms ({speed:.0f} T/s)"
        f"  pairs {1e3 * pairs:.3f}  look {1e3 * look:.3f} (asked for in {1e3 * asked:.3f})  move {1e3 * move:.3f}"
        f"  step {1e3 * (look + move):.3f} ms of {agents} agents"
    )


def compare(descents: Sequence[Descent], targets: Sequence[Target], out: Say) -> None:
    """Make a step here and there, and some more of one agent."""
    for rough in KINDS:
        here, there = copy_of(descents[0]), [copy_of(d) for d in descents]
        here.run(targets[0], lambda made: made < 1)
        Batch(there, targets, DeviceArrays(), rough).run(lambda made: 1 - made)
        pairs = list(zip(here.means, there[0].means, strict=True))
        differ = max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-9)) for a, b in pairs)
        point = here.run(targets[0], lambda made: made < 59)
        other = Batch(there, targets, DeviceArrays(), rough).run(lambda made: 59 - made)[0]
        ours, theirs = (bounds_of(here, p).max() for p in (point, other))
        out(f"  {KINDS[rough]} differ {differ:.1e}; one agent after 60 steps {ours:g} here, {theirs:g} there")


def some_of(steps: int) -> Callable[[int], int]:
    """Return what asks for so many steps, some at a time."""
    return lambda made: min(50, steps - made)


def go_on(descents: Sequence[Descent], targets: Sequence[Target], steps: int, out: Say) -> None:
    """Descend, and say what is proven on the way."""
    marks: list[int] = [0, *(60 << i for i in range(12) if 60 << i < steps), steps]
    for rough in KINDS:
        arrays, took = DeviceArrays(), 0.0
        own = [copy_of(d) for d in descents]
        for before, mark in pairwise(marks):
            batch = Batch(own, targets, arrays, rough)
            arrays.get(batch.steps.least)
            start = time.perf_counter()
            points = batch.run(some_of(mark - before))
            took += time.perf_counter() - start
            found = on_all_cores([partial(bounds_of, d, p) for d, p in zip(own, points, strict=True)])
            highest, mean = sum(float(one.max()) for one in found), sum(float(one.mean()) for one in found)
            out(f"  {KINDS[rough]}: {mark:5d} steps {took:7.3f} s  Σ largest {highest:.6g}  Σ mean {mean:.6g}")


def measure(name: str, steps: int, out: Say) -> None:
    """Measure one problem."""
    out(name)
    networks = [lay_out(local) for local in divide(dmcmc.load(meeting(name))).locals]
    start = time.perf_counter()
    descents = on_all_cores([partial(Descent, network) for network in networks])
    ready = time.perf_counter()
    targets = [
        Target(d.network.digits(rows_of(d)), np.zeros(rows_of(d).size)) for d in descents
    ]  # what all rows are beyond 0
    arrays = DeviceArrays()
    batch = Batch(descents, targets, arrays)
    arrays.get(batch.steps.least)
    end = time.perf_counter()
    shape = batch.shape
    out(f"  {shape}: {shape.bytes / 2**20:.0f} MiB; start {ready - start:.3f} s, set-up {end - ready:.3f} s")
    del batch
    compare(descents, targets, out)
    for rough in (0, ALWAYS):
        time_parts(descents, targets, rough, out)
    go_on(descents, targets, steps, out)
    arrays.close()


def main() -> None:
    """Measure and print."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--steps", type=int, default=4000)
    given = parser.parse_args()
    if lift_problem() is not None:
        sys.exit(lift_problem())
    say = Report(__file__, given, device="cuda")
    for name in NAMES:
        if given.only in name:
            measure(name, given.steps, say)
    say.keep()


if __name__ == "__main__":
    main()
