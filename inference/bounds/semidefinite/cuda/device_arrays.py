"""GPU arrays: CuPy's arrays, and cuBLAS matrix products.

Under Numba's CUDA simulator, NumPy stands in for CuPy and cuBLAS.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from dmcmc.inference.runtime.device import allows_concurrent_use, gpu_problem, shared_device
from dmcmc.inference.runtime.types import Array

MAX_BLOCK_THREADS = 256  # per block of a kernel over pairs
_CUBLAS_TYPES = {np.float16: 2, np.float32: 0}  # cudaDataType of a matrix: CUDA_R_16F and CUDA_R_32F
_COMPUTE_TYPE = 68  # cublasComputeType of the sums: CUBLAS_COMPUTE_32F
_ONE, _ZERO = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
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
    """Arrays on the device; NumPy arrays under Numba's simulator.

    Attributes
    ----------
    module : module
        CuPy, or NumPy under the simulator.
    """

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

    def multiply(self, left: Any, right: Any, out: Any, transposed: bool = False) -> None:
        """Compute ``out = left @ right`` for stacks of row-major matrices, (count, rows, columns) each.

        Parameters
        ----------
        left, right : arrays of one dtype
            Stacks of matrices, float16 or float32; sums of products are float32.
        out : array
            Output.
        transposed : bool
            Whether the right matrices are transposed first.
        """
        if self._simulated:
            right = right.transpose(0, 2, 1) if transposed else right
            out[:] = np.matmul(left.astype(np.float32), right.astype(np.float32))
            return
        from cupy.cuda import device
        from cupy_backends.cuda.libs import cublas

        (count, left_rows, inner), (_, right_rows, right_columns), columns = left.shape, right.shape, out.shape[2]
        dtype, out_dtype = _CUBLAS_TYPES[left.dtype.type], _CUBLAS_TYPES[out.dtype.type]
        # cuBLAS is column-major and these arrays are row-major: it computes the transposed product of the transposes.
        cublas.gemmStridedBatchedEx(
            device.get_cublas_handle(), int(transposed), 0, columns, left_rows, inner, _ONE.ctypes.data,
            right.data.ptr, dtype, right_columns, right_rows * right_columns,
            left.data.ptr, dtype, inner, left_rows * inner,
            _ZERO.ctypes.data, out.data.ptr, out_dtype, columns, left_rows * columns, count,
            _COMPUTE_TYPE, _DEFAULT_ALGORITHM,
        )  # fmt: skip

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
    variables_per_block = min(h, _SIMULATED_THREADS if simulated else max(1, MAX_BLOCK_THREADS // d))
    return h * -(-h // variables_per_block), (d, variables_per_block)


def _cupy() -> Any:
    """Import CuPy, which is optional, and return it."""
    import cupy

    return cupy
