"""The GPU: whether there is one, its memory, its streams. All allocation on the device happens here."""

import ctypes
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.inference.runtime.types import Array


@lru_cache
def gpu_problem() -> str | None:
    """Return why no GPU can be used, or None if one can. Starts the driver; under Numba's simulator there is one."""
    try:
        from numba import cuda
    except ImportError as error:
        return f"numba's CUDA support does not load ({error})"
    try:
        if cuda.is_available():
            cuda.current_context()
            return None
    except Exception as error:  # whatever a broken driver raises
        return f"the CUDA driver does not start ({type(error).__name__}: {' '.join(str(error).split())[:100]})"
    return "no CUDA device is visible"


def takes_threads() -> bool:
    """Return whether several threads may use the GPU at the same time: Numba's simulator has one kernel at work."""
    from numba import config

    return not config.ENABLE_CUDASIM


def describe_gpu() -> str:
    """Return the name and memory of the GPU, or why there is none."""
    problem = gpu_problem()
    if problem is not None:
        return f"none: {problem}"
    from numba import cuda

    gpu = cuda.get_current_device()
    name = gpu.name.decode() if isinstance(gpu.name, bytes) else str(gpu.name)
    return f"{name}, {cuda.current_context().get_memory_info().total / 2**30:.0f} GiB"


def resolve_device(wish: str) -> str:
    """Return ``cpu`` or ``cuda`` for ``auto``, ``cpu`` or ``cuda``.

    Raises
    ------
    Unavailable
        For ``cuda`` where there is none.
    """
    if wish == "cpu":
        return "cpu"
    problem = gpu_problem()
    if wish == "cuda" and problem is not None:
        raise Unavailable(f"device: cuda: {problem}; use device: cpu or auto")
    return "cuda" if problem is None else "cpu"


def gpu_limits(registers: int) -> tuple[int, int, int]:
    """Return what blocks share: bytes of shared memory a block, multiprocessors, threads that registers allow on one.

    Parameters
    ----------
    registers
        Of a thread.
    """
    from numba import config, cuda

    if config.ENABLE_CUDASIM:
        return 48 << 10, 1, 256
    gpu = cuda.get_current_device()
    threads = min(gpu.MAX_THREADS_PER_MULTIPROCESSOR, gpu.MAX_REGISTERS_PER_MULTIPROCESSOR // registers)
    return gpu.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, gpu.MULTIPROCESSOR_COUNT, threads


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error says that the device's memory is used up."""
    text = f"{type(error).__name__} {error}".upper()
    return "OUT_OF_MEMORY" in text or "OUT OF MEMORY" in text


class Claims:
    """Who wants the GPU alone: many short launches would each wait for a long one beside them."""

    def __init__(self) -> None:
        self._claims = 0

    @property
    def any(self) -> bool:
        """Whether somebody does: what goes on beside all else rests."""
        return self._claims > 0

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Claim it."""
        self._claims += 1
        try:
            yield
        finally:
            self._claims -= 1


CLAIMS = Claims()


class Device:
    """Buffers on the current GPU, kept between eliminations: allocating costs more than most of them take.

    Parameters
    ----------
    limit
        Bytes that the tables of an elimination may take; None allows what is free.
    """

    def __init__(self, limit: int | None = None) -> None:
        from numba import config, cuda

        config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # small buckets make small grids
        self._cuda = cuda
        self._buffers: dict[tuple[str, np.dtype[Any]], Any] = {}
        self._free: list[Any] = []
        self._pinned: dict[str, NDArray[np.uint8]] = {}
        self.streams = [cuda.stream(), cuda.stream()]
        self._limit = limit
        self._allowed: dict[Any, int] = {}
        self._compiled: dict[tuple[Any, ...], Any] = {}
        self._simulated = bool(config.ENABLE_CUDASIM)
        self.meanwhile: Callable[[], None] | None = None  # what the host does once, as soon as the device is at work

    def work_meanwhile(self) -> None:
        """Do what has been left for when the device is at work."""
        work, self.meanwhile = self.meanwhile, None
        if work is not None:
            work()

    @cached_property
    def limit(self) -> int:
        """Bytes that the tables of an elimination may take: what was free at first, less a reserve for scratch."""
        return int(0.85 * self.unused()) if self._limit is None else self._limit

    def buffer(self, name: str, entries: int, dtype: np.dtype[Any]) -> Any:
        """Return device memory for at least so many entries, contents undefined; one buffer a name and dtype."""
        held = self._buffers.get((name, dtype))
        if held is None or held.size < entries:
            self._buffers.pop((name, dtype), None)
            del held
            held = self._cuda.device_array(max(1, entries + entries // 8), dtype)
            self._buffers[name, dtype] = held
        return held

    def lease(self, entries: int, dtype: np.dtype[Any], owner: object) -> Any:
        """Return device memory that is ``owner``'s until that is garbage; then others may have it."""
        fitting = [b for b in self._free if b.dtype == dtype and b.size >= entries]
        if fitting:
            held = min(fitting, key=lambda b: b.size)
            self._free[:] = [b for b in self._free if b is not held]
        else:
            if self._free and entries * dtype.itemsize > self.unused():
                self._free.clear()
            held = self._cuda.device_array(max(1, entries), dtype)
        weakref.finalize(owner, self._free.append, held)
        return held

    def unused(self) -> int:
        """Return the bytes that nobody holds."""
        try:
            free, _ = self._cuda.current_context().get_memory_info()
            return int(free)
        except (AttributeError, NotImplementedError, OverflowError):  # the simulator has no memory of its own
            return 1 << 32

    def page_locked(self, entries: int, dtype: np.dtype[Any]) -> Array:
        """Return new host memory that the GPU copies from and to at full speed; freed with the last view of it."""
        held: Array = self._cuda.pinned_array(max(1, entries), dtype)
        return held

    def pinned(self, name: str, entries: int, dtype: np.dtype[Any]) -> Array:
        """Return page-locked host memory for passing use; one buffer a name, contents undefined."""
        need = max(1, entries) * dtype.itemsize
        held = self._pinned.get(name)
        if held is None or held.nbytes < need:
            self._pinned[name] = held = self._cuda.pinned_array(need, np.uint8)
        return held[:need].view(dtype)

    def upload(self, name: str, data: Array, stream: Any = 0) -> Any:
        """Copy an array to its buffer and return that."""
        to = self.buffer(name, data.size, data.dtype)
        if data.size and self._simulated:
            to[: data.size].copy_to_device(data)
        elif data.size:  # without the slice, which costs more than a small copy
            from numba.cuda.cudadrv.driver import host_to_device

            host_to_device(to, np.ascontiguousarray(data), data.nbytes, stream=stream)
        return to

    def upload_shaped(self, name: str, data: Array) -> Any:
        """Copy an array to its buffer and return that in the array's shape."""
        return self.upload(name, data.reshape(-1))[: data.size].reshape(data.shape)

    def allow_shared(self, kernel: Any, arguments: tuple[Any, ...], size: int) -> None:
        """Let a kernel's blocks have more dynamic shared memory than the 48 KiB that need no asking."""
        if size <= 48 << 10 or self._simulated:
            return
        types = tuple(kernel.typeof_pyval(a) for a in arguments)
        if size <= self._allowed.get((kernel, types), 0):
            return
        from cuda.bindings import driver as bindings
        from numba.cuda.cudadrv.driver import driver

        function = kernel.compile(types)._codelibrary.get_cufunc()
        attribute = bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.cuKernelSetAttribute(attribute, size, function.handle, self._cuda.get_current_device().id)
        self._allowed[kernel, types] = size

    def repeated(
        self, kernel: Any, arguments: Sequence[Any], changing: int
    ) -> Callable[[int, int | tuple[int, ...], int | tuple[int, int]], None]:
        """Return what launches a kernel with these arguments but one whole number: (that, blocks, threads of a block).

        Numba looks at all arguments at every launch, which takes longer than many kernels do.

        Parameters
        ----------
        arguments
            Arrays may be any library's.
        changing
            Which argument is given at every launch.
        """
        if self._simulated:

            def simulated(number: int, blocks: int | tuple[int, ...], threads: int | tuple[int, int]) -> None:
                kernel[blocks, threads](*arguments[:changing], number, *arguments[changing + 1 :])

            return simulated
        from cuda.bindings import driver as bindings

        kinds = kernel, *(_kind(argument) for argument in arguments)
        compiled = self._compiled.get(kinds)
        if compiled is None:  # to look it up again takes as long as some launches
            types = tuple(kernel.typeof_pyval(self._as_numbas(a)) for a in arguments)
            compiled = self._compiled[kinds] = kernel.compile(types)
        words = [_words(argument) for argument in arguments]
        flat = [word for some in words for word in some]
        pointers = (ctypes.c_void_p * len(flat))(*map(ctypes.addressof, flat))
        function = bindings.CUfunction(int(compiled._codelibrary.get_cufunc().handle))
        held, where = (arguments, flat, compiled), ctypes.addressof(pointers)

        def launch(number: int, blocks: int | tuple[int, ...], threads: int | tuple[int, int]) -> None:
            words[changing][0].value = number
            grid = (*blocks, 1, 1)[:3] if isinstance(blocks, tuple) else (blocks, 1, 1)
            x, y = threads if isinstance(threads, tuple) else (threads, 1)
            (error,) = bindings.cuLaunchKernel(function, *grid, x, y, 1, 0, 0, where, 0)
            if error != bindings.CUresult.CUDA_SUCCESS:
                raise RuntimeError(f"{kernel.__name__}: {error.name}: {len(held[1])} words, {len(pointers)} pointers")

        return launch

    def _as_numbas(self, argument: Any) -> Any:
        """Return an array of any library's as Numba has it; anything else as it is."""
        there = hasattr(argument, "__cuda_array_interface__")
        return self._cuda.as_cuda_array(argument, sync=False) if there else argument

    def load(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        """Compile a kernel for arguments of these types, or find it on disk; without a launch."""
        if not self._simulated:
            kernel.compile(tuple(kernel.typeof_pyval(a) for a in arguments))

    def stream_beside(self) -> Any:
        """Return a stream of its own, behind all others where they want the same: neither waits for the other."""
        if self._simulated:
            return self._cuda.stream()
        from cuda.bindings import driver as bindings

        self._cuda.current_context()
        _, least, _ = bindings.cuCtxGetStreamPriorityRange()
        flags = bindings.CUstream_flags.CU_STREAM_NON_BLOCKING.value
        error, stream = bindings.cuStreamCreateWithPriority(flags, least)
        if error != bindings.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"a stream of its own: {error.name}")
        return self._cuda.external_stream(int(stream))

    def synchronize(self) -> None:
        """Wait for everything, but not for what has a stream of its own beside the others."""
        if not self._simulated:
            for stream in (*self.streams, self._cuda.default_stream()):
                stream.synchronize()

    def release(self) -> None:
        """Give all memory back."""
        self._buffers.clear()
        self._free.clear()
        self._pinned.clear()


def _words(argument: Any) -> list[Any]:
    """Return an argument as Numba's kernels take it: of an array two empty words, sizes, place, shape and strides."""
    interface = getattr(argument, "__cuda_array_interface__", None)
    if interface is None:
        number = isinstance(argument, float | np.floating)
        return [ctypes.c_double(argument) if number else ctypes.c_int64(int(argument))]
    sizes = argument.size, argument.dtype.itemsize, interface["data"][0]
    return [ctypes.c_int64(word) for word in (0, 0, *sizes, *argument.shape, *argument.strides)]


def _kind(argument: Any) -> Any:
    """Return what kernels are compiled for: arguments of which it is the same have the same type."""
    shape = getattr(argument, "shape", None)
    if not shape:  # a number
        return type(argument)
    return argument.dtype, argument.strides, shape if len(shape) > 1 else ()


@lru_cache
def shared_device() -> Device:
    """Return this process's device."""
    return Device()


def opened() -> bool:
    """Return whether this process uses a GPU."""
    return shared_device.cache_info().currsize > 0
