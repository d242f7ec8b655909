"""The GPU: its availability, memory, streams and launches. All device memory is allocated here."""

import ctypes
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.errors import DmcmcError, GpuFault, Unavailable
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import DEVICE_SHARE, WORKSPACE_SHARE

_LOG = logging.getLogger(__name__)


def gpu_problem() -> str | None:
    """Return why no GPU can be used, or None if one can; this starts the driver. Numba's simulator counts as a GPU."""
    return _FAILURES[0] if _FAILURES else _driver_problem()


@lru_cache
def _driver_problem() -> str | None:
    """Return why there is no GPU, or its driver does not start; None if there is a GPU."""
    try:
        from numba import cuda
    except ImportError as error:
        return f"numba's CUDA support does not load ({error})"
    try:
        if cuda.is_available():
            cuda.current_context()
            return None
    except Exception as error:  # a broken driver may raise anything
        return f"the CUDA driver does not start ({type(error).__name__}: {' '.join(str(error).split())[:100]})"
    return "no CUDA device is visible"


def allows_concurrent_use() -> bool:
    """Return whether several threads may use the GPU concurrently; Numba's simulator runs one kernel at a time."""
    from numba import config

    return not config.ENABLE_CUDASIM


def describe_gpu() -> str:
    """Return the name and memory of the GPU, or why there is none."""
    problem = gpu_problem()
    if problem is not None:
        return f"none: {problem}"
    from numba import config, cuda

    if config.ENABLE_CUDASIM:
        return "Numba's simulator"

    gpu = cuda.get_current_device()
    name = gpu.name.decode() if isinstance(gpu.name, bytes) else str(gpu.name)
    return f"{name}, {cuda.current_context().get_memory_info().total / 2**30:.0f} GiB"


def resolve_device(requested: str) -> str:
    """Return ``cpu`` or ``cuda`` for the requested device ``auto``, ``cpu`` or ``cuda``; ``cpu`` after a failure.

    Raises
    ------
    Unavailable
        If ``cuda`` is requested and there has never been a GPU that can be used.
    """
    if requested == "cpu" or gpu_has_failed():
        return "cpu"
    problem = gpu_problem()
    if requested == "cuda" and problem is not None:
        raise Unavailable(f"device: cuda: {problem}; use device: cpu or auto")
    return "cuda" if problem is None else "cpu"


def gpu_limits(registers: int) -> tuple[int, int, int]:
    """Return the resources that the blocks of a kernel share; small fixed numbers in Numba's simulator.

    Parameters
    ----------
    registers : int
        Registers per thread.

    Returns
    -------
    shared_bytes : int
        Maximum shared memory of a block, in bytes.
    multiprocessors : int
        Number of multiprocessors.
    threads : int
        Maximum threads per multiprocessor with this number of registers.
    """
    from numba import config, cuda

    if config.ENABLE_CUDASIM:
        return 48 << 10, 1, 256
    gpu = cuda.get_current_device()
    threads = min(gpu.MAX_THREADS_PER_MULTIPROCESSOR, gpu.MAX_REGISTERS_PER_MULTIPROCESSOR // registers)
    return gpu.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, gpu.MULTIPROCESSOR_COUNT, threads


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the device's memory is exhausted."""
    text = f"{type(error).__name__} {error}".upper()
    return "OUT_OF_MEMORY" in text or "OUT OF MEMORY" in text


_FAILURES: list[str] = []  # why the GPU of this process has failed; empty as long as it works
# Names of the errors by which Numba, CuPy and cuBLAS report a failed call of the driver.
_DRIVER_ERRORS = {"CudaDriverError", "CudaRuntimeError", "CudaAPIError", "CUDARuntimeError", "CUDADriverError"}
_DRIVER_ERRORS |= {"CUBLASError", "CUDAError", "LaunchError"}
_STICKY_ERRORS_FROM = 700  # number from which errors of the driver say that a kernel has failed; they stay


class LaunchError(RuntimeError):
    """A launch or another call of the driver that failed; as Numba reports its own calls."""


def gpu_fault(error: BaseException) -> GpuFault | None:
    """Return a failure of the GPU as an error for users, and close the GPU; None for any other error.

    After most failures every further call of the driver fails, too. Nothing uses the GPU again in this process, and
    objects in its memory are not freed. The process whose GPU has failed says so in one line; others may receive the
    error from it.
    """
    if is_out_of_memory(error):
        return None
    if isinstance(error, GpuFault):
        _close_gpu(str(error))
        return error
    if isinstance(error, DmcmcError):
        return None
    of_driver = bool(_DRIVER_ERRORS.intersection(kind.__name__ for kind in type(error).__mro__))
    if not of_driver and not _has_died():
        return None
    fault = GpuFault(f"the GPU has failed ({' '.join(str(error).split())[:200]})")
    if not gpu_has_failed():
        _LOG.warning(f"dmcmc: {fault}; the CPU does its work from now on")
    _close_gpu(str(fault))
    return fault


def _has_died() -> bool:
    """Return whether a kernel has failed, after which libraries raise errors of any type."""
    if gpu_has_failed() or not is_gpu_in_use() or not allows_concurrent_use():
        return gpu_has_failed()
    from cuda.bindings import driver as bindings

    (error,) = bindings.cuCtxSynchronize()
    return int(error) >= _STICKY_ERRORS_FROM


def gpu_has_failed() -> bool:
    """Return whether the GPU of this process has failed, so that nothing uses it any more."""
    return bool(_FAILURES)


def leave_to_cpu(error: Exception) -> bool:
    """Return whether the CPU has to do some work because of an error, and prepare for that.

    That is so if the device's memory is exhausted, whose buffers are then freed, or if the device has failed.
    """
    if is_out_of_memory(error):
        shared_device().release()
        return True
    return gpu_fault(error) is not None


class CpuFallback:
    """A block of work for the GPU, which ends without an error where the CPU has to do the work; a context manager.

    Parameters
    ----------
    *refusals : type of BaseException
        Errors that say, besides those of :func:`leave_to_cpu`, that the GPU cannot do the work.
    """

    def __init__(self, *refusals: type[BaseException]) -> None:
        self._refusals = refusals

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        return isinstance(error, self._refusals) or (isinstance(error, Exception) and leave_to_cpu(error))


def _close_gpu(why: str) -> None:
    """Let nothing use the GPU of this process from now on, because it has failed."""
    if _FAILURES:
        return
    _FAILURES.append(why)
    shared_device.cache_clear()


def _free_quietly(context: Any) -> None:
    """Let a context drop what waits to be freed, instead of raising errors inside destructors, if it has failed."""

    def free_or_drop(waiting: Any, free: Callable[[], None]) -> None:
        try:
            free()
        except Exception:  # after a failure of the device every call of the driver fails
            waiting._cons.clear()

    for waiting in (context.deallocations, context.memory_manager.deallocations):  # streams and modules; arrays
        waiting.clear = partial(free_or_drop, waiting, waiting.clear)


class GpuClaims:
    """Claims of exclusive GPU use by work with many short launches.

    Each of these launches would otherwise wait for a long launch of background work.
    """

    def __init__(self) -> None:
        self._claims = 0

    @property
    def is_claimed(self) -> bool:
        """Whether there is a claim; background work on the GPU then pauses."""
        return self._claims > 0

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Claim the GPU inside the block."""
        self._claims += 1
        try:
            yield
        finally:
            self._claims -= 1


GPU_CLAIMS = GpuClaims()

# Specialisations of kernels in this process: the compiled code by kernel and argument types, and the bytes of shared
# memory that each may use.
_COMPILED: dict[tuple[Any, ...], Any] = {}
_ALLOWED_SHARED: dict[tuple[Any, ...], int] = {}


class Device:
    """Memory and streams of the current GPU; buffers are kept between eliminations because allocation is expensive.

    There are three kinds of memory: named buffers, overwritten at each use, for one call of a function (``buffer``, and
    ``pinned`` on the host); leased arrays, for all that outlives a call, which return to the list ``_free`` when their
    owner is garbage-collected (``lease``, ``hold``); and page-locked host arrays that belong to the caller
    (``page_locked``). An array has the requested size, so that an index beyond it is outside of the array.

    Parameters
    ----------
    limit : int or None
        Bytes that the tables of an elimination may take; None allows what is free at the first use.

    Attributes
    ----------
    streams : list of stream
        Two streams for overlapping transfers and kernels.
    overlapped_work : callable or None
        Host work that is run once, as soon as the device is busy.
    """

    def __init__(self, limit: int | None = None) -> None:
        from numba import config, cuda

        config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # small buckets have small grids
        self._cuda = cuda
        self._buffers: dict[tuple[str, np.dtype[Any]], Any] = {}
        self._free: list[Any] = []
        self._lock = RLock()
        self._pinned: dict[str, NDArray[np.uint8]] = {}
        self.streams = [cuda.stream(), cuda.stream()]
        self._limit = limit
        self._simulated = bool(config.ENABLE_CUDASIM)
        if not self._simulated:
            _free_quietly(cuda.current_context())
        self.overlapped_work: Callable[[], None] | None = None

    def run_overlapped_work(self) -> None:
        """Run and clear the host work that overlaps with the device's work."""
        work, self.overlapped_work = self.overlapped_work, None
        if work is not None:
            work()

    @cached_property
    def limit(self) -> int:
        """The bytes that the tables of an elimination may take.

        By default it is ``DEVICE_SHARE`` of the memory that is free at the first use; other buffers need the rest.
        """
        return int(DEVICE_SHARE * self.free_bytes()) if self._limit is None else self._limit

    def buffer(self, name: str, entries: int, dtype: np.dtype[Any]) -> Any:
        """Return the buffer with this name and dtype, for at least ``entries`` entries; its contents are undefined.

        A new buffer is an eighth larger than requested, so that slowly growing requests do not allocate each time.
        """
        memory = self._buffers.get((name, dtype))
        if memory is None or memory.size < entries:
            self._buffers.pop((name, dtype), None)
            del memory
            memory = self._cuda.device_array(max(1, entries + entries // 8), dtype)
            self._buffers[name, dtype] = memory
        return memory

    def lease(self, entries: int, dtype: np.dtype[Any], owner: object) -> Any:
        """Return device memory that belongs to ``owner`` until ``owner`` is garbage-collected; then it is reused.

        Raises
        ------
        MemoryError
            If too little memory would remain for named buffers, without which nothing can be done with the lease.
        """
        with self._lock:
            candidates = [i for i, b in enumerate(self._free) if b.dtype == dtype and b.size >= entries]
            if candidates:  # owners that are collected meanwhile, also in other threads, only append
                memory = self._free.pop(min(candidates, key=lambda i: self._free[i].size))
            else:
                memory = _new_lease(entries, dtype, self._free)
        weakref.finalize(owner, self._free.append, memory)
        return memory[: max(1, entries)]

    def hold(self, data: Array, owner: object) -> Any:
        """Return a copy of an array, flattened, in device memory that belongs to ``owner``, see :meth:`lease`."""
        memory = self.lease(data.size, data.dtype, owner)
        if not data.size:
            return memory[:0]
        memory.copy_to_device(np.ascontiguousarray(data).reshape(-1))
        return memory

    def free_bytes(self) -> int:
        """Return the free bytes of the device; 4 GiB in the simulator."""
        return _memory()[0]

    def page_locked(self, entries: int, dtype: np.dtype[Any]) -> Array:
        """Return new page-locked host memory, which the GPU copies at full speed; it is freed with its last view."""
        memory: Array = self._cuda.pinned_array(max(1, entries), dtype)
        return memory

    def pinned(self, name: str, entries: int, dtype: np.dtype[Any]) -> Array:
        """Return page-locked host memory for temporary use, with undefined contents; one buffer per name."""
        size = max(1, entries) * dtype.itemsize
        memory = self._pinned.get(name)
        if memory is None or memory.nbytes < size:
            self._pinned[name] = memory = self._cuda.pinned_array(size, np.uint8)
        return memory[:size].view(dtype)

    def upload(self, name: str, data: Array, stream: Any = 0) -> Any:
        """Copy an array to the buffer with this name, and return the buffer."""
        target = self.buffer(name, data.size, data.dtype)
        if data.size and self._simulated:
            target[: data.size].copy_to_device(data)
        elif data.size:  # without a slice, which takes longer than a small copy
            from numba.cuda.cudadrv.driver import host_to_device

            host_to_device(target, np.ascontiguousarray(data), data.nbytes, stream=stream)
        return target

    def upload_shaped(self, name: str, data: Array) -> Any:
        """Copy an array to the buffer with this name, and return the buffer in the array's shape."""
        return self.upload(name, data.reshape(-1))[: data.size].reshape(data.shape)

    def load(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        """Compile a kernel for arguments of these types, or load it from the disk cache, without a launch."""
        if not self._simulated:
            kernel.compile(tuple(kernel.typeof_pyval(a) for a in arguments))

    def background_stream(self) -> Any:
        """Return a new non-blocking stream of the lowest priority, for background work.

        It does not wait for other streams, and they do not wait for it.
        """
        if self._simulated:
            return self._cuda.stream()
        from cuda.bindings import driver as bindings

        self._cuda.current_context()
        error, lowest, _ = bindings.cuCtxGetStreamPriorityRange()
        if error != bindings.CUresult.CUDA_SUCCESS:
            raise LaunchError(f"cannot read the priorities of streams: {error.name}")
        flags = bindings.CUstream_flags.CU_STREAM_NON_BLOCKING.value
        error, stream = bindings.cuStreamCreateWithPriority(flags, lowest)
        if error != bindings.CUresult.CUDA_SUCCESS:
            raise LaunchError(f"cannot create a stream: {error.name}")
        return self._cuda.external_stream(int(stream))

    def synchronize(self) -> None:
        """Wait for all work of the device except on background streams."""
        if not self._simulated:
            for stream in (*self.streams, self._cuda.default_stream()):
                stream.synchronize()

    def release(self) -> None:
        """Drop all buffers."""
        self._buffers.clear()
        self._free.clear()
        self._pinned.clear()


def _memory() -> tuple[int, int]:
    """Return the free and all bytes of the device; 4 GiB in the simulator."""
    from numba import cuda

    try:
        free, total = cuda.current_context().get_memory_info()
        return int(free), int(total)
    except (AttributeError, NotImplementedError, OverflowError):  # the simulator has no device memory
        return 1 << 32, 1 << 32


def _new_lease(entries: int, dtype: np.dtype[Any], unused: list[Any]) -> Any:
    """Return a new array on the device; if the memory is small, ``unused`` arrays are freed first.

    Raises
    ------
    MemoryError
        If too little memory would remain for named buffers.
    """
    from numba import config, cuda

    size = entries * dtype.itemsize
    if unused and size > _leasable_bytes():
        unused.clear()
        if not config.ENABLE_CUDASIM:  # Numba frees memory later
            cuda.current_context().deallocations.clear()
    if size > _leasable_bytes():
        raise MemoryError(f"the GPU is out of memory for {size:,} bytes of tables")
    return cuda.device_array(max(1, entries), dtype)


def _leasable_bytes() -> int:
    """Return the bytes that a new lease may take."""
    free, total = _memory()
    return free - int(WORKSPACE_SHARE * total)


def allow_shared(kernel: Any, arguments: tuple[Any, ...], size: int) -> None:
    """Let a kernel's blocks use ``size`` bytes of dynamic shared memory; the default limit is 48 KiB."""
    if size <= 48 << 10 or not allows_concurrent_use():
        return
    types = tuple(kernel.typeof_pyval(a) for a in arguments)
    if size <= _ALLOWED_SHARED.get((kernel, types), 0):
        return
    from cuda.bindings import driver as bindings
    from numba import cuda
    from numba.cuda.cudadrv.driver import driver

    function = kernel.compile(types)._codelibrary.get_cufunc()
    attribute = bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.cuKernelSetAttribute(attribute, size, function.handle, cuda.get_current_device().id)
    _ALLOWED_SHARED[kernel, types] = size


def prepare_launch(
    kernel: Any, arguments: Sequence[Any], changing: int
) -> Callable[[int, int | tuple[int, ...], int | tuple[int, int]], None]:
    """Return a function that launches a kernel repeatedly with fixed arguments except for one integer.

    Numba inspects all arguments at every launch, which takes longer than many kernels do.

    Parameters
    ----------
    kernel : kernel
        A kernel from ``dmcmc.inference.runtime.compile.cuda_jit``.
    arguments : sequence
        All arguments of the kernel; device arrays of any library that supports the CUDA array interface.
    changing : int
        Position of the integer argument that each launch sets.

    Returns
    -------
    callable
        ``launch(number, blocks, threads)``: the integer argument, the grid, and the threads per block.
    """
    if not allows_concurrent_use():  # the simulator

        def simulated(number: int, blocks: int | tuple[int, ...], threads: int | tuple[int, int]) -> None:
            kernel[blocks, threads](*arguments[:changing], number, *arguments[changing + 1 :])

        return simulated
    from cuda.bindings import driver as bindings

    type_key = kernel, *(_type_key(argument) for argument in arguments)
    compiled = _COMPILED.get(type_key)
    if compiled is None:  # compiling again takes as long as several launches
        types = tuple(kernel.typeof_pyval(_as_numba_array(a)) for a in arguments)
        compiled = _COMPILED[type_key] = kernel.compile(types)
    argument_words = [_kernel_words(argument) for argument in arguments]
    flat = [word for some in argument_words for word in some]
    pointers = (ctypes.c_void_p * len(flat))(*map(ctypes.addressof, flat))
    function = bindings.CUfunction(int(compiled._codelibrary.get_cufunc().handle))
    keep_alive, pointer_address = (arguments, flat, compiled), ctypes.addressof(pointers)

    def launch(number: int, blocks: int | tuple[int, ...], threads: int | tuple[int, int]) -> None:
        argument_words[changing][0].value = number
        grid = (*blocks, 1, 1)[:3] if isinstance(blocks, tuple) else (blocks, 1, 1)
        x, y = threads if isinstance(threads, tuple) else (threads, 1)
        (error,) = bindings.cuLaunchKernel(function, *grid, x, y, 1, 0, 0, pointer_address, 0)
        if error != bindings.CUresult.CUDA_SUCCESS:
            raise LaunchError(
                f"{kernel.__name__}: {error.name}: {len(keep_alive[1])} argument words, {len(pointers)} pointers"
            )

    return launch


def _as_numba_array(argument: Any) -> Any:
    """Return a device array of any library as a Numba array; other arguments unchanged."""
    from numba import cuda

    is_device_array = hasattr(argument, "__cuda_array_interface__")
    return cuda.as_cuda_array(argument, sync=False) if is_device_array else argument


def _kernel_words(argument: Any) -> list[Any]:
    """Return an argument as the C values of Numba's calling convention.

    An array becomes two unused words, its size, item size, address, shape and strides.
    """
    interface = getattr(argument, "__cuda_array_interface__", None)
    if interface is None:
        is_float = isinstance(argument, float | np.floating)
        return [ctypes.c_double(argument) if is_float else ctypes.c_int64(int(argument))]
    sizes = argument.size, argument.dtype.itemsize, interface["data"][0]
    return [ctypes.c_int64(word) for word in (0, 0, *sizes, *argument.shape, *argument.strides)]


def _type_key(argument: Any) -> Any:
    """Return a key for an argument's type: kernels are compiled once per combination of keys."""
    shape = getattr(argument, "shape", None)
    if not shape:  # a number
        return type(argument)
    return argument.dtype, argument.strides, shape if len(shape) > 1 else ()


@lru_cache
def shared_device() -> Device:
    """Return the device object of this process."""
    return Device()


def is_gpu_in_use() -> bool:
    """Return whether this process uses a GPU."""
    return shared_device.cache_info().currsize > 0
