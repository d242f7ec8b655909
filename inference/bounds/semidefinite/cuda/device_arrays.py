"""Whether CuPy, which is optional, can compute semidefinite relaxations on the GPU."""

from functools import lru_cache

from dmcmc.inference.runtime.device import allows_concurrent_use, gpu_problem


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
