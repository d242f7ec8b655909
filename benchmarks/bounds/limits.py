"""What a sweep of dual ascent has to do, and what a machine could do of that: bytes, sums and maxima a second."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import LANES, Graph
from dmcmc.inference.bounds.dual.tables.product_kernels import max_plus
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.runtime.threads import cores, run_parallel

_AT_ONCE = 1000  # products between two looks at the clock
H200_MAX_PLUS = 11.2e12  # int32 sums and maxima a second, CUDA C++, 8192 x 8192 tiles: the most that was measured


class Work(NamedTuple):
    """A sweep: bytes of tables that go to and from memory, and sums with their maxima."""

    bytes: float
    operations: float


def sweep_of(graph: Graph, width: int) -> Work:
    """Return the work of a sweep over tables of so many columns, of which none is skipped.

    A triangle reads and writes its three tables and those of its pairs; a variable reads and writes those of its pairs.
    Each side of a triangle is one max-plus product.
    """
    tables = 12 * len(graph.triangles) + 4 * len(graph.pairs)
    return Work(4.0 * width**2 * tables, 3.0 * width**3 * len(graph.triangles))


def packed_operations(graph: Graph, masks: NDArray[np.bool_]) -> float:
    """Return the operations of a node's sweep, tables packed: the mean of some, (k, n, W) their values."""
    widths = -(-masks.sum(axis=2) // LANES) * LANES
    return float(3.0 * widths[:, graph.corners].prod(axis=2).sum(axis=1).mean())


def copied_on_gpu(bytes_: int = 1 << 30, repeats: int = 20) -> float:
    """Return the bytes a second that a GPU reads and writes when it copies."""
    from numba import cuda

    one, other = (cuda.device_array(bytes_ // 4, np.int32) for _ in range(2))
    for count in (1, repeats):
        start = time.perf_counter()
        for _ in range(count):
            one.copy_to_device(other)
        cuda.synchronize()
    return 2.0 * bytes_ * repeats / (time.perf_counter() - start)


def launched_on_gpu(repeats: int = 200) -> float:
    """Return the seconds of a launch that does nothing, when it is waited for."""
    from numba import cuda

    nothing, there = cuda.jit(lambda numbers: None), cuda.device_array(1, np.int32)
    for count in (1, repeats):
        start = time.perf_counter()
        for _ in range(count):
            nothing[1, 32](there)
            cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def max_plus_on_cpu(width: int, seconds: float = 0.5) -> float:
    """Return the operations a second of all cores in the product that sweeps are made of, its tables in the cache."""
    made = [0] * cores()

    def task(number: int) -> Callable[[], None]:
        def work() -> None:
            left, right, out = (np.zeros((width, width), dtype=np.int32) for _ in range(3))
            _repeated(left, right, out, 1)
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                _repeated(left, right, out, _AT_ONCE)
                made[number] += _AT_ONCE

        return work

    run_parallel([task(number) for number in range(len(made))], len(made))
    return sum(made) * float(width) ** 3 / seconds


@njit(nogil=True)
def _repeated(left: Any, right: Any, out: Any, times: int) -> None:
    for _ in range(times):
        max_plus(left, right, out, left.shape[0], left.shape[0], left.shape[0])
