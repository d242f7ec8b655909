"""Numba's decorators for this package's kernels: what they compile is kept in our own folder between runs.

Numba chooses the place for a kernel's compiled code when caching is switched on for it, by a setting of the whole
process. That setting is ours only for that moment, so that nobody else's functions move. A ``NUMBA_CACHE_DIR`` of the
user's own goes before our folder; where neither can be written to, Numba looks for a place itself, and where there is
none, kernels are compiled anew in every process.

Compiling is most of a first run's time, so kernels are compiled for less than Numba would: a kernel that another one
calls with a constant once for the constant's type, not once a constant; without entry points for C; and the garbage
collector, which would go through all that the compiler holds again and again, waits until a kernel is done. The
compiler's calls go deep, and again and again beyond the end of a block of Python's stack: a new one is then taken from
the system at each call, and given back (a third of the time). So it gets one block that is large enough.
"""

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from types import MethodType
from typing import Any

import numba
from numba.core import entrypoints, event
from numba.core.caching import FunctionCache, NullCache
from numba.core.runtime import rtsys

from dmcmc.inference.runtime.kernel_cache import kernel_folder
from dmcmc.inference.runtime.types import Array

_LOCK = threading.RLock()
_COPIES: dict[int, tuple[weakref.ref[Array], Array]] = {}  # of arrays that cannot be written, as long as those live
_STACK = 70_000  # slots of a frame: its block of the stack is 1 MiB, as much again for what it calls; none is touched


@cache
def _dispose_of_passes() -> None:
    """Let llvmlite give back its passes over a kernel, which hold most of what compiling takes.

    In llvmlite 0.50 the method that does so is hidden by an empty one of the class that stands before its own.
    """
    with suppress(ImportError, AttributeError):
        from llvmlite.binding import ffi
        from llvmlite.binding import newpassmanagers as passes

        for kind in (passes.FunctionPassManager, passes.ModulePassManager):
            if kind._dispose is ffi.ObjectRef._dispose:
                kind._dispose = passes.NewPassManager._dispose


class _NoCollection(event.Listener):  # type: ignore[misc]
    """Holds the garbage collector while something is compiled, until a kernel is done; one thread compiles at a time.

    What a kernel leaves in circles is collected after it, also where it was compiled for another one, and before the
    next one takes memory beside it: a fifth of all that compiling takes, for a hundredth of its time. Only what is new
    is looked at (all of it takes half as long as compiling).
    """

    def __init__(self) -> None:
        self._open, self._collects = 0, False

    def on_start(self, event: Any) -> None:
        """Hold it, where it is not held."""
        if self._open == 0:
            _dispose_of_passes()
            self._collects = gc.isenabled()
            gc.disable()
        self._open += 1

    def on_end(self, event: Any) -> None:
        """Collect what this kernel left; let it go on after the outermost one, if it was at work before."""
        self._open -= 1
        gc.collect(1 if self._open == 0 else 0)
        if self._open == 0 and self._collects:
            gc.enable()


event.register("numba:compile", _NoCollection())


class _Count(event.Listener):  # type: ignore[misc]
    """Tells how many kernels of ours have been compiled so far."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._done, self._tell = 0, tell

    def on_start(self, event: Any) -> None:
        """Do nothing."""

    def on_end(self, event: Any) -> None:
        """Count one more."""
        if event.data["dispatcher"].py_func.__module__.startswith("dmcmc."):
            self._done += 1
            self._tell(self._done)


@contextmanager
def counted_compiling(tell: Callable[[int], None]) -> Iterator[None]:
    """Call a function with the number of kernels compiled so far in this block, after each of them."""
    with event.install_listener("numba:compile", _Count(tell)):
        yield


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return :func:`numba.njit` with these options and a cache of our own."""

    def decorate(function: Callable[..., Any]) -> Any:
        return _cached(_roomy(_one_for_all_constants(numba.njit(no_cfunc_wrapper=True, **options)(function))))

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


def cuda_part(function: Callable[..., Any]) -> Any:
    """Return a function of the GPU that is compiled into whoever calls it, however long it is.

    By itself it would not know that its arrays are in shared memory, which takes slower instructions.
    """
    from numba import cuda

    if numba.config.ENABLE_CUDASIM:
        return cuda.jit(device=True)(function)
    return cuda.jit(device=True, forceinline=True)(function)


def writable(array: Array) -> Array:
    """Return an array, or a copy of one that cannot be written: what is compiled for both would be compiled twice."""
    return array if array.flags.writeable else array.copy()


def writable_once(array: Array) -> Array:
    """Return an array, or a copy of one that cannot be written: the same one as long as the array lives, for reading.

    What many keep (each agent's plan the whole problem's domain sizes) is there once.
    """
    if array.flags.writeable:
        return array
    key = id(array)
    found = _COPIES.get(key)
    if found is None or found[0]() is not array:
        found = weakref.ref(array, lambda _: _COPIES.pop(key, None)), array.copy()
        _COPIES[key] = found
    return found[1]


def _one_for_all_constants(kernel: Any) -> Any:
    """Let kernels that call this one with constants share what is compiled for their types."""
    template = getattr(kernel, "get_call_template", None)
    if template is not None:  # else it is interpreted

        def get_call_template(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
            plain = {name: numba.types.unliteral(kind) for name, kind in kws.items()}
            return template(tuple(map(numba.types.unliteral, args)), plain)

        kernel.get_call_template = get_call_template
    return kernel


def _roomy(kernel: Any) -> Any:
    """Let a kernel be compiled with a large block of Python's stack."""
    compiler = getattr(kernel, "_compiler", None)
    if compiler is not None:  # else it is interpreted
        compiler.compile = with_stack(compiler.compile)
    return kernel


def with_stack(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls another one with half a MiB of Python's stack in one block."""

    def call(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    call.__code__ = call.__code__.replace(co_stacksize=_STACK)
    return call


def _cached(kernel: Any) -> Any:
    """Let a compiled function be cached; functions that are interpreted stay as they are."""
    if hasattr(kernel, "enable_caching"):
        kernel._cache = _CacheWhenUsed(kernel)
    return kernel


class _CacheWhenUsed:
    """Stands for a kernel's cache until it is first looked at: one run uses few of all kernels.

    Numba tries for each whether its place can be written to, which is most of what it takes to import a kernel.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        kernel = self._kernel
        with _LOCK:
            if (
                kernel._cache is self
            ):  # other threads see this until the kernel has its own: nothing is compiled unsaved
                with _our_folder():
                    try:
                        kernel.enable_caching()
                    except RuntimeError:  # there is nowhere to write to
                        kernel._cache = NullCache()
                made: Any = kernel._cache
                if type(made) is FunctionCache:
                    made.load_overload = MethodType(_load, made)
        return getattr(kernel._cache, name)


def _load(cache: Any, signature: Any, context: Any) -> Any:
    """Return what the disk has of a kernel, or None; without all that Numba imports and registers to compile one.

    The compiler asks for that itself when it begins. What compiled code calls by name has to be there: the memory of
    arrays, hashes, and what extensions bring.
    """
    import numba.cpython.hashing  # noqa: F401  # not at the top: processes that load no kernel need neither

    rtsys.initialize(context)
    entrypoints.init_all()
    with cache._guard_against_spurious_io_errors():
        return cache._load_overload(signature, context)


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
