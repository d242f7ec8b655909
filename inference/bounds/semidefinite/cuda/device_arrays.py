"""GPU arrays for a batch of descents: CuPy's arrays, cuBLAS matrix products, and the kernels of ``step_kernels``.

``DeviceArrays`` implements the protocol ``batched_steps.BatchArrays``. Under Numba's CUDA simulator, NumPy stands in
for CuPy and cuBLAS.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dmcmc.inference.bounds.semidefinite.cuda import step_kernels as kernels
from dmcmc.inference.runtime.device import allows_concurrent_use, gpu_problem, shared_device
from dmcmc.inference.runtime.types import Array

MAX_DOMAIN = kernels.MAX_BLOCK_THREADS
_ADAM_LAUNCH = 256, 1 << 11  # threads per block, maximum number of blocks
# cudaDataType of a matrix: CUDA_R_16F, CUDA_R_32F, CUDA_R_64F; and cublasComputeType of its products' sums:
# CUBLAS_COMPUTE_32F, twice, and CUBLAS_COMPUTE_64F
_CUBLAS_TYPES = {np.float16: (2, 68), np.float32: (0, 68), np.float64: (1, 70)}
_COMPUTE_TF32 = 77  # cuBLAS: CUBLAS_COMPUTE_32F_FAST_TF32
_ONE_AND_ZERO = {dtype: (np.ones(1, dtype=dtype), np.zeros(1, dtype=dtype)) for dtype in (np.float32, np.float64)}
_DEFAULT_ALGORITHM = -1  # cuBLAS: CUBLAS_GEMM_DEFAULT
_SIMULATED_THREADS = 2  # blocks, threads and variables per block under the simulator, where each thread is a CPU thread


@lru_cache
def relaxation_gpu_problem() -> str | None:
    """Return why a semidefinite relaxation cannot run on a GPU; None if it can, also under Numba's simulator."""
    problem = gpu_problem()
    if problem is not None or not allows_concurrent_use():
        return problem
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
        cupy.matmul(cupy.ones((2, 2), dtype=cupy.float32), cupy.ones((2, 2), dtype=cupy.float32))
    except Exception as error:  # a driver or an incompatible library may raise anything
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        return f"CuPy does not work here ({what}); pip install 'dmcmc[semidefinite]'"
    return None


class DeviceArrays:
    """Arrays on the device, a ``BatchArrays``; NumPy arrays under Numba's simulator.

    Attributes
    ----------
    module : module
        CuPy, or NumPy under the simulator.
    """

    padded = True

    def __init__(self) -> None:
        self._device, self._simulated = shared_device(), not allows_concurrent_use()
        self.module: Any = np if self._simulated else _cupy()

    def put(self, array: Array) -> Any:
        """Return a copy on the device."""
        return array.copy() if self._simulated else self.module.asarray(array)

    def get(self, array: Any) -> Array:
        """Return a copy on the host; waits until all queued work is complete."""
        found: Array = array if self._simulated else self.module.asnumpy(array)
        return found

    def product(self, left: Any, right: Any, out: Any, transposed: bool = False, low_precision: bool = False) -> None:
        """Compute ``out = left @ right`` for stacks of row-major float32 matrices, (agents, rows, columns) each.

        ``transposed`` transposes the right matrices first. ``low_precision`` allows the inputs to be rounded to 11 bits
        (TF32).
        """
        self.multiply(left, right, out, transposed, _COMPUTE_TF32 if low_precision else None)

    def multiply(self, left: Any, right: Any, out: Any, transposed: bool = False, compute: int | None = None) -> None:
        """Compute ``out = left @ right`` for stacks of row-major matrices, (count, rows, columns) each.

        Parameters
        ----------
        left, right : arrays of one dtype
            Stacks of matrices: float16 or float32, whose sums are float32, or float64.
        out : array
            Output.
        transposed : bool
            Whether the right matrices are transposed first.
        compute : int or None
            cublasComputeType; None for that of the dtype.
        """
        sums = np.float64 if left.dtype == np.float64 else np.float32
        if self._simulated:
            right = right.transpose(0, 2, 1) if transposed else right
            out[:] = np.matmul(left.astype(sums), right.astype(sums))
            return
        from cupy.cuda import device
        from cupy_backends.cuda.libs import cublas

        (count, left_rows, inner), (_, right_rows, right_columns), columns = left.shape, right.shape, out.shape[2]
        (dtype, default_compute), (out_dtype, _) = _CUBLAS_TYPES[left.dtype.type], _CUBLAS_TYPES[out.dtype.type]
        alpha, beta = _ONE_AND_ZERO[sums]
        # cuBLAS is column-major and these arrays are row-major: it computes the transposed product of the transposes.
        cublas.gemmStridedBatchedEx(
            device.get_cublas_handle(), int(transposed), 0, columns, left_rows, inner, alpha.ctypes.data,
            right.data.ptr, dtype, right_columns, right_rows * right_columns,
            left.data.ptr, dtype, inner, left_rows * inner,
            beta.ctypes.data, out.data.ptr, out_dtype, columns, left_rows * columns, count,
            default_compute if compute is None else compute, _DEFAULT_ALGORITHM,
        )  # fmt: skip

    def value_maxima(self, entries: Any, variables: int) -> Any:
        """Return the maximum entry of each variable's values; see ``BatchArrays.value_maxima``."""
        agents, rows, _ = entries.shape
        return entries.reshape(agents, rows, variables, -1).max(axis=3)

    def value_weights(self, entries: Any, best: Any, inverse_temperatures: Any, totals: Any) -> Any:
        """Return the softmax weights of each variable's values; see ``BatchArrays.value_weights``."""
        by_variable = entries.reshape(*best.shape, -1)
        by_variable -= best[..., None]
        by_variable *= inverse_temperatures[:, None, None, None]
        weights = self.module.exp(by_variable)
        weights *= (totals / weights.sum(axis=3))[..., None]
        return weights.reshape(entries.shape)

    def smooth(
        self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], shape: tuple[int, int, int]
    ) -> Callable[[int], None]:
        """Return a launch of ``step_kernels.smooth_kernel`` for a step, see ``BatchArrays.smooth``.

        Parameters
        ----------
        inputs : tuple
            utilities, products, messages, sizes, schedule.
        outputs : tuple
            weights, marginals, maxima.
        shape : tuple of int
            Number of agents, variables per agent, values per variable.
        """
        return self._over_pairs(kernels.smooth_kernel, (*inputs, *outputs), shape)

    def _over_pairs(
        self, make_kernel: Callable[[int], Any], arrays: tuple[Any, ...], shape: tuple[int, int, int]
    ) -> Callable[[int], None]:
        """Return a launch of a kernel each of whose blocks handles one variable and several partners.

        ``make_kernel`` returns the kernel for a maximum number of values per variable, here d rounded up to a multiple
        of 8.
        """
        agents, h, d = shape
        blocks, (_, variables_per_block) = launch_shape(h, d, self._simulated)
        arguments = (*map(self._flat, arrays), h, d, blocks // h, agents, 0)
        # The last argument, the index of the step, changes with each launch.
        launch = self._device.prepare_launch(make_kernel(8 * -(-d // 8)), arguments, len(arguments) - 1)
        return lambda step: launch(step, agents * blocks, variables_per_block * d)

    def adam(self, arrays: tuple[Any, ...], schedule: Any, agents: int) -> Callable[[int], None]:
        """Return a launch of ``step_kernels.adam``.

        Parameters
        ----------
        arrays : tuple
            Variables, gradient, first moment and second moment: float32 arrays of one size, agents first.
        schedule : (steps, agents, 4) float32
            Parameters of the steps, the fields of ``descent.StepParameters``.
        agents : int
            Number of agents.
        """
        entries = arrays[0].size // agents
        arguments = (*map(self._flat, (*arrays, schedule)), entries, agents, 0)
        launch = self._device.prepare_launch(kernels.adam, arguments, len(arguments) - 1)
        threads, max_blocks = (_SIMULATED_THREADS, _SIMULATED_THREADS) if self._simulated else _ADAM_LAUNCH
        return lambda step: launch(step, max(1, min(max_blocks, -(-arrays[0].size // threads))), threads)

    def _flat(self, array: Any) -> Any:
        """Return a flat view of an array, as the kernels take it."""
        return array.reshape(-1)

    def close(self) -> None:
        """Return unused memory to the device."""
        if not self._simulated:
            self.module.get_default_memory_pool().free_all_blocks()


def launch_shape(h: int, d: int, simulated: bool) -> tuple[int, tuple[int, int]]:
    """Return the launch geometry of kernels over pairs, for h variables of at most d values.

    Returns
    -------
    blocks : int
        Blocks per agent, the same number for each variable.
    threads : tuple of int
        Threads per block: values, and variables handled by a block.
    """
    variables_per_block = min(h, _SIMULATED_THREADS if simulated else max(1, kernels.MAX_BLOCK_THREADS // d))
    return h * -(-h // variables_per_block), (d, variables_per_block)


def _cupy() -> Any:
    """Import CuPy, which is optional, and return it."""
    import cupy

    return cupy
