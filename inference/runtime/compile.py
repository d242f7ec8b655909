"""Numba's decorators for this package's kernels: what they compile is kept in our own folder between runs.

Numba chooses the place for a kernel's compiled code when caching is switched on for it, by a setting of the whole
process. That setting is ours only for that moment, so that nobody else's functions move. A ``NUMBA_CACHE_DIR`` of the
user's own goes before our folder; where neither can be written to, Numba looks for a place itself, and where there is
none, kernels are compiled anew in every process.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numba

from dmcmc.inference.runtime.cache import kernel_folder

_LOCK = threading.RLock()


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return :func:`numba.njit` with these options and a cache of our own."""

    def decorate(function: Callable[..., Any]) -> Any:
        return _cached(numba.njit(**options)(function))

    return decorate


def cuda_jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return :func:`numba.cuda.jit` for a kernel, with these options and a cache of our own; the simulator has neither.

    Parameters
    ----------
    options
        Such as ``max_registers``, of a thread.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        from numba import cuda

        if numba.config.ENABLE_CUDASIM:
            return cuda.jit(function)
        return _cached(cuda.jit(**options)(function))

    return decorate


def _cached(kernel: Any) -> Any:
    """Switch caching on for a compiled function; functions that are interpreted stay as they are."""
    if hasattr(kernel, "enable_caching"):
        with _LOCK, _our_folder(), suppress(RuntimeError):  # where there is nowhere to write to
            kernel.enable_caching()
    return kernel


@contextmanager
def _our_folder() -> Iterator[None]:
    """Let Numba, and Numba's CUDA target where it has settings of its own, take our folder."""
    folder = kernel_folder()
    modules = [sys.modules.get(name) for name in ("numba.core.config", "numba.cuda.core.config")]
    settings: list[Any] = [module for module in modules if module is not None]
    before = [module.CACHE_DIR for module in settings]
    try:
        for module in settings:
            if not module.CACHE_DIR and folder is not None:
                module.CACHE_DIR = str(folder)
        yield
    finally:
        for module, own in zip(settings, before, strict=True):
            module.CACHE_DIR = own
