"""What a batch of descents works with on a GPU: CuPy's arrays and products of matrices, and kernels of our own."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dmcmc.inference.bounds.semidefinite.cuda import step_kernels as kernels
from dmcmc.inference.runtime.device import gpu_problem, shared_device, takes_threads
from dmcmc.inference.runtime.types import Array

MOST_DOMAIN = kernels.MOST_THREADS
_ADAM = 256, 1 << 11  # threads, and blocks at most
_FLOAT32, _TF32, _ANY = 68, 77, -1  # cuBLAS: how products are made, by any of its ways
_SIMULATED = 2  # blocks, and variables of a block, under the simulator, which has a real thread for each


@lru_cache
def lift_problem() -> str | None:
    """Return why semidefinite lifts cannot go to a GPU; None if they can."""
    problem = gpu_problem()
    if problem is not None or not takes_threads():
        return problem
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
        cupy.matmul(cupy.ones((2, 2), dtype=cupy.float32), cupy.ones((2, 2), dtype=cupy.float32))
    except Exception as error:  # whatever a driver or a library that does not fit it raises
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        return f"CuPy does not work here ({what}); pip install 'dmcmc[lift]'"
    return None


class DeviceArrays:
    """Arrays on the device; an :class:`.steps.Arrays`. Under Numba's simulator they are NumPy's."""

    def __init__(self) -> None:
        self._device, self._simulated = shared_device(), not takes_threads()
        self._one, self._nothing = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
        self.module: Any = np if self._simulated else _cupy()

    def put(self, array: Array) -> Any:
        """Return a copy there."""
        return array.copy() if self._simulated else self.module.asarray(array)

    def get(self, array: Any) -> Array:
        """Return a copy here; waits for all that was asked for."""
        found: Array = array if self._simulated else self.module.asnumpy(array)
        return found

    def product(self, left: Any, right: Any, out: Any, turned: bool = False, rough: bool = False) -> None:
        """Set ``out`` to products of matrices, (agents, ., .) in rows each; see :class:`.steps.Arrays`."""
        if self._simulated:
            np.matmul(left, right.transpose(0, 2, 1) if turned else right, out=out)
            return
        from cupy.cuda import device, runtime
        from cupy_backends.cuda.libs import cublas

        (agents, rows, inner), (_, high, wide) = left.shape, right.shape
        single, columns = runtime.CUDA_R_32F, out.shape[2]
        # cuBLAS has columns where these have rows: it makes the turned product of the turned matrices.
        cublas.gemmStridedBatchedEx(
            device.get_cublas_handle(), int(turned), 0, columns, rows, inner, self._one.ctypes.data,
            right.data.ptr, single, wide, high * wide, left.data.ptr, single, inner, rows * inner,
            self._nothing.ctypes.data, out.data.ptr, single, columns, rows * columns, agents,
            _TF32 if rough else _FLOAT32, _ANY,
        )  # fmt: skip

    def smooth(
        self, given: tuple[Any, ...], found: tuple[Any, ...], shape: tuple[int, int, int]
    ) -> Callable[[int], None]:
        """Return what launches :func:`.step_kernels.smooth_kernel`'s for a step.

        Parameters
        ----------
        given
            utilities, products, shifts, sizes, schedule.
        found
            weights, marginals, maxima.
        shape
            Agents, variables, values of a variable.
        """
        return self._over_pairs(kernels.smooth_kernel, (*given, *found), shape)

    def _over_pairs(
        self, kernel: Callable[[int], Any], arrays: tuple[Any, ...], shape: tuple[int, int, int]
    ) -> Callable[[int], None]:
        """Return what launches a kernel whose blocks have one variable and some others."""
        agents, h, d = shape
        blocks, (_, together) = launch_shape(h, d, self._simulated)
        arguments = (*map(self._flat, arrays), h, d, blocks // h, agents, 0)
        launch = self._device.repeated(kernel(8 * -(-d // 8)), arguments, len(arguments) - 1)
        return lambda at: launch(at, agents * blocks, together * d)

    def adam(self, arrays: tuple[Any, ...], schedule: Any, agents: int) -> Callable[[int], None]:
        """Return what launches :func:`.step_kernels.adam`: for what moves, its slopes, their means and squares."""
        entries = arrays[0].size // agents
        arguments = (*map(self._flat, (*arrays, schedule)), entries, agents, 0)
        launch = self._device.repeated(kernels.adam, arguments, len(arguments) - 1)
        threads, most = (_SIMULATED, _SIMULATED) if self._simulated else _ADAM
        return lambda at: launch(at, max(1, min(most, -(-arrays[0].size // threads))), threads)

    def _flat(self, array: Any) -> Any:
        """Return an array as kernels take it."""
        return array.reshape(-1)

    def close(self) -> None:
        """Give memory back that nothing needs any more."""
        if not self._simulated:
            self.module.get_default_memory_pool().free_all_blocks()


def launch_shape(h: int, d: int, simulated: bool) -> tuple[int, tuple[int, int]]:
    """Return how kernels over pairs are launched for h variables of d values at most.

    Returns
    -------
    blocks
        Of an agent, as many for each variable.
    threads
        Values, and variables side by side.
    """
    together = min(h, _SIMULATED if simulated else max(1, kernels.MOST_THREADS // d))
    return h * -(-h // together), (d, together)


def _cupy() -> Any:
    import cupy

    return cupy
