"""Work of a sweep of dual ascent, and the rates that a machine could reach: bytes, and sums with maxima, per second."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import LANES, DualGraph
from dmcmc.inference.bounds.dual.tables.product_kernels import max_plus
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.runtime.threads import cores, run_parallel

_PRODUCTS_PER_CHECK = 1000  # products between two readings of the clock
H200_MAX_PLUS = 11.2e12  # int32 sums and maxima per second: the highest measured rate (CUDA C++, 8192 x 8192 tiles)


class SweepWork(NamedTuple):
    """The work of a sweep.

    Attributes
    ----------
    bytes : float
        Bytes of tables that are read from and written to memory.
    operations : float
        Sums, each with a maximum.
    """

    bytes: float
    operations: float


def sweep_of(graph: DualGraph, width: int) -> SweepWork:
    """Return the work of a sweep over tables of ``width`` columns, none of which is skipped.

    A triangle reads and writes its three tables and those of its pairs; a variable reads and writes those of its pairs.
    Each side of a triangle is one max-plus product.
    """
    tables = 12 * len(graph.triangles) + 4 * len(graph.pairs)
    return SweepWork(4.0 * width**2 * tables, 3.0 * width**3 * len(graph.triangles))


def packed_operations(graph: DualGraph, masks: NDArray[np.bool_]) -> float:
    """Return the mean operations of a sweep of a node whose tables are packed to its allowed values.

    Parameters
    ----------
    graph : DualGraph
        The agent's graph.
    masks : ndarray of bool, shape (nodes, variables, columns)
        The allowed values of each node.
    """
    widths = -(-masks.sum(axis=2) // LANES) * LANES
    return float(3.0 * widths[:, graph.corners].prod(axis=2).sum(axis=1).mean())


def gpu_copy_rate(bytes_: int = 1 << 30, repeats: int = 20) -> float:
    """Return the bytes per second that a GPU reads and writes in a copy."""
    from numba import cuda

    one, other = (cuda.device_array(bytes_ // 4, np.int32) for _ in range(2))
    for count in (1, repeats):
        start = time.perf_counter()
        for _ in range(count):
            one.copy_to_device(other)
        cuda.synchronize()
    return 2.0 * bytes_ * repeats / (time.perf_counter() - start)


def gpu_launch_seconds(repeats: int = 200) -> float:
    """Return the seconds of an empty kernel launch with a synchronisation."""
    from numba import cuda

    empty, array = cuda.jit(lambda numbers: None), cuda.device_array(1, np.int32)
    for count in (1, repeats):
        start = time.perf_counter()
        for _ in range(count):
            empty[1, 32](array)
            cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def cpu_max_plus_rate(width: int, seconds: float = 0.5) -> float:
    """Return the operations per second of all cores in max-plus products of tables that fit the cache."""
    products = [0] * cores()

    def task(number: int) -> Callable[[], None]:
        def work() -> None:
            left, right, out = (np.zeros((width, width), dtype=np.int32) for _ in range(3))
            _repeat_product(left, right, out, 1)
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                _repeat_product(left, right, out, _PRODUCTS_PER_CHECK)
                products[number] += _PRODUCTS_PER_CHECK

        return work

    run_parallel([task(number) for number in range(len(products))], len(products))
    return sum(products) * float(width) ** 3 / seconds


@njit(nogil=True)
def _repeat_product(left: Any, right: Any, out: Any, times: int) -> None:
    """Repeat one max-plus product."""
    for _ in range(times):
        max_plus(left, right, out, left.shape[0], left.shape[0], left.shape[0])
