"""The arrays of nodes on a GPU.

GPU arrays for a batch of nodes: CuPy's arrays, cuBLAS products of matrices, and the kernels of ``node_kernels``.

A node is a row of an agent (an assignment of its boundary variables) with some hidden variables fixed. It has h hidden
variables of d values, n = h·d values, and m > n factor vectors of r components.

Whether CuPy, which is optional, can compute semidefinite relaxations on the GPU.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dmcmc.inference.bounds.semidefinite.cuda import node_kernels as kernels
from dmcmc.inference.bounds.semidefinite.node_steps import NodeInputs, NodeShape, NodeWorkspace, PassLaunch, StepPasses
from dmcmc.inference.runtime.device import allows_concurrent_use, gpu_problem, prepare_launch, shared_device
from dmcmc.inference.runtime.types import Array

_CUBLAS_TYPES = {np.float16: 2, np.float32: 0}  # cudaDataType of a matrix: CUDA_R_16F and CUDA_R_32F
_COMPUTE_TYPE = 68  # cublasComputeType of the sums: CUBLAS_COMPUTE_32F
_ONE, _ZERO = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
_DEFAULT_ALGORITHM = -1  # cuBLAS: CUBLAS_GEMM_DEFAULT
_ADAM_BLOCK = (32, 8)  # threads per factor vector (a warp), factor vectors per block
_SIMULATED_BLOCK = (2, 2)  # the same under the simulator
_SIMULATED_THREADS = 2  # variables per block under the simulator, where each thread is a CPU thread


class DeviceNodeArrays:
    """CuPy's arrays, a ``NodeArrays``; NumPy arrays under Numba's simulator.

    Attributes
    ----------
    module : module
        CuPy, or NumPy under the simulator.
    """

    half: Any = np.float16

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

    def passes(self, inputs: NodeInputs, work: NodeWorkspace, schedule: Any, shape: NodeShape) -> StepPasses:
        """Return launches of the passes of a step.

        In order: Gram matrices of the vectors, max-marginals of the pairwise tables, message update, weights of the
        pairwise tables, gradient, and Adam step. A block of a pass over pairs handles one variable and several
        partners.

        Parameters
        ----------
        inputs : NodeInputs
            Arrays that stay constant during the steps.
        work : NodeWorkspace
            Arrays that the steps change.
        schedule : (steps, 3) float32
            Parameters of the steps: inverse temperature, step size, bias correction.
        shape : NodeShape
            Sizes of the arrays.
        """
        h, d, m, vector_count = shape.h, shape.d, shape.m, shape.nodes * shape.m
        # threads of a block: values of a variable, and variables
        threads = d, min(h, _SIMULATED_THREADS if self._simulated else max(1, kernels.MAX_BLOCK_THREADS // d))
        pairs_per_block = min(threads[1], kernels.tables_per_block(d))
        pair_grid, pair_block = (max(1, -(-(h - 1) // pairs_per_block)), h, shape.nodes), (d, pairs_per_block)
        tables = inputs.utilities, inputs.agents, work.products, work.messages, inputs.sizes, schedule
        message_arguments = (
            work.products, work.messages, work.value_maxima, inputs.values, inputs.sizes, inputs.table_counts, schedule,
            work.weights, work.best, h, m,
        )  # fmt: skip
        vectors = work.vectors, work.half_vectors, work.gradients, work.first_moment, work.second_moment
        adam_arguments = (*vectors, schedule, vector_count, shape.r)
        adam_block = _SIMULATED_BLOCK if self._simulated else _ADAM_BLOCK
        return StepPasses(
            lambda step: self.multiply(work.half_vectors, work.half_vectors, work.products, transposed=True),
            self._launched(kernels.value_maxima_kernel(d), (*tables, work.value_maxima, h, m), pair_grid, pair_block),
            self._launched(kernels.message_kernel(d), message_arguments, (1, h, shape.nodes), threads),
            self._launched(
                kernels.pair_weights_kernel(d), (*tables, work.weights, work.maxima, h, m), pair_grid, pair_block
            ),
            lambda step: self.multiply(work.weights, work.half_vectors, work.gradients),
            self._launched(kernels.adam_step, adam_arguments, -(-vector_count // adam_block[1]), adam_block),
        )

    def _launched(self, kernel: Any, arguments: tuple[Any, ...], blocks: Any, threads: Any) -> PassLaunch:
        """Return a launch of a kernel whose last argument is the index of the step.

        ``arguments`` are all other arguments; ``blocks`` and ``threads`` are the sizes of the grid and of a block.
        """
        flat = [argument.reshape(-1) if hasattr(argument, "reshape") else argument for argument in arguments]
        launch: Callable[..., None] = prepare_launch(kernel, (*flat, 0), len(flat))
        return lambda step: launch(step, blocks, threads)

    def close(self) -> None:
        """Return unused memory to the device."""
        if not self._simulated:
            self.module.get_default_memory_pool().free_all_blocks()


def _cupy() -> Any:
    """Import CuPy, which is optional, and return it."""
    import cupy

    return cupy


def relaxation_gpu_problem() -> str | None:
    """Return why a semidefinite relaxation cannot run on a GPU; None if it can, also under Numba's simulator."""
    problem = gpu_problem()
    return problem if problem is not None or not allows_concurrent_use() else _cupy_problem()


@lru_cache
def _cupy_problem() -> str | None:
    """Return why CuPy does not work; None if it does."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
        cupy.matmul(cupy.ones((2, 2), dtype=cupy.float32), cupy.ones((2, 2), dtype=cupy.float32))
    except Exception as error:  # a driver or an incompatible library may raise anything
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        return f"CuPy does not work here ({what}); pip install 'dmcmc[semidefinite]'"
    return None
