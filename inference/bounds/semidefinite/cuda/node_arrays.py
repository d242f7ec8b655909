"""What a batch of cases works with on a GPU: CuPy's arrays, cuBLAS for products, and kernels of our own."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dmcmc.inference.bounds.semidefinite.cuda import node_kernels as kernels
from dmcmc.inference.bounds.semidefinite.cuda.certificate_kernels import maxima_kernel
from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import DeviceArrays, launch_shape
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import (
    CaseGiven,
    CaseShape,
    CaseWork,
    ExactGiven,
    Pass,
    Passes,
)

_MOVE, _SIMULATED = (32, 8), (2, 2)  # threads of a vector and vectors of a block; under the simulator
_KINDS = {np.float16: 2, np.float32: 0, np.float64: 1}  # of numbers, as cuBLAS has them
_SINGLE, _DOUBLE, _ANY = 68, 70, -1  # cuBLAS: how sums are made, by any of its ways
_FACTORS = [(np.ones(1, dtype=kind), np.zeros(1, dtype=kind)) for kind in (np.float32, np.float64)]


class DeviceCases(DeviceArrays):
    """Arrays on the device, for cases; a :class:`.CaseArrays`. Under Numba's simulator they are NumPy's."""

    def passes(self, given: CaseGiven, work: CaseWork, schedule: Any, shape: CaseShape) -> Passes:
        """Return what launches the passes of a step."""
        h, d, m, vectors = shape.h, shape.d, shape.m, shape.cases * shape.m
        _, threads = launch_shape(h, d, self._simulated)
        side_by_side = min(threads[1], kernels.pairs_together(d))
        over_pairs, of_pairs = (max(1, -(-(h - 1) // side_by_side)), h, shape.cases), (d, side_by_side)
        tables = given.utilities, given.agents, work.products, work.shifts, given.sizes, schedule
        alone = (
            work.products, work.shifts, work.reached, given.values, given.sizes, given.tables, schedule,
            work.weights, work.best, h, m,
        )  # fmt: skip
        move = work.points, work.halves, work.slopes, work.means, work.spreads, schedule, vectors, shape.r
        side = _SIMULATED if self._simulated else _MOVE
        return Passes(
            lambda at: self._multiply(work.halves, work.halves, work.products, turned=True),
            self._launched(kernels.reach_kernel(d), (*tables, work.reached, h, m), over_pairs, of_pairs),
            self._launched(kernels.alone_kernel(d), alone, (1, h, shape.cases), threads),
            self._launched(kernels.smooth_kernel(d), (*tables, work.weights, work.maxima, h, m), over_pairs, of_pairs),
            lambda at: self._multiply(work.weights, work.halves, work.slopes),
            self._launched(kernels.move, move, -(-vectors // side[1]), side),
        )

    def exact_products(self, vectors: Any) -> Any:
        """Return products of vectors in double precision with themselves."""
        cases, m, _ = vectors.shape
        out = self.module.empty((cases, m, m))
        self._multiply(vectors, vectors, out, turned=True)
        return out

    def maxima(self, given: ExactGiven, shape: CaseShape) -> Any:
        """Return :func:`.certificate_kernels.maxima_kernel`'s."""
        found = self.module.zeros((shape.cases, shape.h, shape.h), dtype=np.int64)
        blocks, threads = launch_shape(shape.h, shape.d, self._simulated)
        arguments = [self._flat(one) for one in (*given, found)]
        launch = self._device.repeated(maxima_kernel(shape.d), (*arguments, shape.m, shape.h), len(arguments) + 1)
        launch(shape.h, (blocks // shape.h, shape.h, shape.cases), threads)
        return found

    def _launched(self, kernel: Any, arguments: tuple[Any, ...], blocks: Any, threads: Any) -> Pass:
        """Return what launches a kernel for a step, its last argument."""
        flat = [self._flat(one) if hasattr(one, "reshape") else one for one in arguments]
        launch: Callable[..., None] = self._device.repeated(kernel, (*flat, 0), len(flat))
        return lambda at: launch(at, blocks, threads)

    def _multiply(self, left: Any, right: Any, out: Any, turned: bool = False) -> None:
        """Set ``out`` to products of matrices of alike numbers, (cases, ., .) in rows each.

        Parameters
        ----------
        turned
            Whether those on the right are turned round.
        """
        double = left.dtype == np.float64
        if self._simulated:
            right, sums = right.transpose(0, 2, 1) if turned else right, np.float64 if double else np.float32
            out[:] = np.matmul(left.astype(sums), right.astype(sums))
            return
        from cupy.cuda import device
        from cupy_backends.cuda.libs import cublas

        (cases, rows, inner), (_, high, wide), columns = left.shape, right.shape, out.shape[2]
        kind, other = _KINDS[left.dtype.type], _KINDS[out.dtype.type]
        one, nothing = _FACTORS[double]
        # cuBLAS has columns where these have rows: it makes the turned product of the turned matrices.
        cublas.gemmStridedBatchedEx(
            device.get_cublas_handle(), int(turned), 0, columns, rows, inner, one.ctypes.data,
            right.data.ptr, kind, wide, high * wide, left.data.ptr, kind, inner, rows * inner,
            nothing.ctypes.data, out.data.ptr, other, columns, rows * columns, cases,
            _DOUBLE if double else _SINGLE, _ANY,
        )  # fmt: skip
