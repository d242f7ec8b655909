"""Compiling kernels, and storing them.

Numba's decorators for this project's kernels, with compiled code cached in this project's own folder between runs.

:mod:`dmcmc.inference.storage.numba_cache` stores and loads the compiled code. Functions of other packages are not
affected.

Compilation dominates the time of a first run, so kernels are compiled with less work than by default:

* A kernel that another kernel calls with a constant is compiled once for the constant's type, not once per constant.
* No entry points for C are generated.
* Kernels that create no arrays count no references to them (``allocates=False``).
* The garbage collector is disabled until a kernel is done, because it would traverse all data of the compiler again and
  again.
* The compiler gets one large block of Python's stack. Its deep recursion would otherwise often cross the end of a stack
  block; Python then requests a new block from the system at each call and returns it afterwards.

Release compiler metadata that compiled kernels no longer need.

Numba keeps it until the process ends: the intermediate code of each kernel twice (once for callers that are compiled
later, which Numba can recreate), and the types of all its expressions. This memory would reduce what a run can use.
"""

import ctypes
import gc
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import numba
from numba.core import event
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature

from dmcmc.inference.runtime.interpreted import interpretable, is_interpreting
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.storage.cache_folders import compiled_marker
from dmcmc.inference.storage.loaded_library import adapt_flags, compiles_kernel, is_for_linking
from dmcmc.inference.storage.numba_cache import LazyCache
from dmcmc.inference.tuning import OPTIONAL_KERNELS

_COPIES: dict[
    int, tuple[weakref.ref[Array], Array]
] = {}  # writable copies of read-only arrays, by id, as long as the original is alive
# Unused slots of a frame: they make Python allocate a stack block of 1 MiB, half of which its callees can use.
_FRAME_SLOTS = 70_000
COMPILED: set[str] = set()  # names of the kernel sets that this process knows to be compiled


class KernelSet(NamedTuple):
    """The kernels of one component: what it compiles when it solves a tiny problem, or is called in a tiny way.

    It stands next to the kernels. In a run with a time budget, other processes compile it, and the component is used
    once it is ready.

    Attributes
    ----------
    name : str
        What the kernels depend on: methods, number types, layouts. It also names the marker file.
    compile : callable
        Compiles or loads the kernels by calling them. It can be pickled.
    """

    name: str
    compile: Callable[[], object]

    @property
    def rank(self) -> int:
        """Place in the order of compiling: 0 if runs cannot do without it, then by gain per second of compiling."""
        return next((i for i, name in enumerate(OPTIONAL_KERNELS, start=1) if self.name.startswith(name)), 0)

    @property
    def is_compiled(self) -> bool:
        """Whether a process of this node has compiled and stored the kernels."""
        if is_interpreting() or self.name in COMPILED:
            return True
        marker = compiled_marker(self.name)
        if marker is not None and os.path.isfile(marker):
            COMPILED.add(self.name)
        return self.name in COMPILED

    def is_ready(self, requested: bool = True) -> bool:
        """Return whether the component can work without compiling; if not, request it, if that is wanted."""
        supplier = _supplier()
        if supplier is None:
            return True
        if requested and not supplier.is_ready(self):
            supplier.request(self)
        return supplier.is_ready(self)


class KernelSupplier(Protocol):
    """Lets other processes compile what a run calls."""

    def supply(self, kernel: "Kernel", signature: Any) -> None:
        """Wait until the code of a kernel for a signature is stored, or raise an error; return if nobody can store it.

        It is called before the code is needed, on the thread that needs it.
        """

    def request(self, *sets: KernelSet) -> float:
        """Compile kernel sets in the background; return the seconds that do not count as run time."""

    def is_ready(self, *sets: KernelSet) -> bool:
        """Return whether kernel sets can be used."""


_SUPPLIERS: list[KernelSupplier] = []  # of the timed runs of this process
_OWN_SUPPLIER: ContextVar[KernelSupplier | None] = ContextVar("supplier", default=None)  # of the run of this thread


def _supplier() -> KernelSupplier | None:
    """Return the supplier of the run that this thread works for; of the latest run if that is not known."""
    own = _OWN_SUPPLIER.get()
    return own if own in _SUPPLIERS else _SUPPLIERS[-1] if _SUPPLIERS else None


@cache
def _enable_pass_disposal() -> None:
    """Make llvmlite free the pass managers of a kernel, which hold most of the memory of a compilation.

    In llvmlite 0.50, the method that frees them is hidden by an empty method of a base class that precedes its own
    class.
    """
    with suppress(ImportError, AttributeError):
        from llvmlite.binding import ffi
        from llvmlite.binding import newpassmanagers as passes

        for manager in (passes.FunctionPassManager, passes.ModulePassManager):
            if manager._dispose is ffi.ObjectRef._dispose:
                manager._dispose = passes.NewPassManager._dispose


class _CollectorPause(event.Listener):  # type: ignore[misc]
    """Disables the garbage collector during compilation, and measures it; only one thread compiles at a time.

    Cyclic garbage of a kernel is collected right after its compilation, also inside the compilation of another kernel,
    before the next one allocates memory. Only the young generations are collected, because a full collection takes half
    as long as compiling.
    """

    def __init__(self) -> None:
        self._depth, self._was_enabled, self._begun, self.seconds = 0, False, 0.0, 0.0

    def on_start(self, event: Any) -> None:
        """Disable the collector at the start of the outermost compilation."""
        if self._depth == 0:
            _enable_pass_disposal()
            self._was_enabled, self._begun = gc.isenabled(), time.thread_time()
            gc.disable()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """Collect this kernel's garbage; after the outermost compilation, restore the collector's state."""
        self._depth -= 1
        gc.collect(1 if self._depth == 0 else 0)
        if self._depth == 0:
            self.seconds += time.thread_time() - self._begun
        if self._depth == 0 and self._was_enabled:
            gc.enable()


_collector_pause = _CollectorPause()
event.register("numba:compile", _collector_pause)


def compilation_seconds() -> float:
    """Return the processor seconds that this process has compiled for the CPU."""
    return _collector_pause.seconds


class _AfterCompilation(event.Listener):  # type: ignore[misc]
    """Calls a function with the dispatcher of each kernel that has been compiled."""

    def __init__(self, act: Callable[[Any], object]) -> None:
        self._act = act

    def on_start(self, event: Any) -> None:
        """Do nothing when a compilation starts."""

    def on_end(self, event: Any) -> None:
        """Call the function."""
        self._act(event.data["dispatcher"])


@contextmanager
def count_compilations(report: Callable[[int], None]) -> Iterator[None]:
    """Call ``report`` with the number of kernels compiled so far in this block, after each of them."""
    numbers = count(1)

    def note(dispatcher: Any) -> None:
        if dispatcher.py_func.__module__.startswith("dmcmc."):
            report(next(numbers))

    with event.install_listener("numba:compile", _AfterCompilation(note)):
        yield


@contextmanager
def kernels_supplied_by(supplier: KernelSupplier) -> Iterator[None]:
    """Do not compile the kernels that Python calls in this block: another process does, and this one loads them."""
    _SUPPLIERS.append(supplier)
    outer = _OWN_SUPPLIER.set(supplier)
    try:
        yield
    finally:
        _OWN_SUPPLIER.reset(outer)
        _SUPPLIERS.remove(supplier)


def compilation_of(kernel: "Kernel", signature: Any) -> Callable[[], object]:
    """Return a function that compiles and stores a kernel in any process; it can be pickled."""
    function = kernel.py_func
    named = partial(_kernel_of_name, function.__module__, function.__qualname__)
    return partial(_compile_kernel, getattr(function, "recreate", named), tuple(normalize_signature(signature)[0]))


def _kernel_of_name(module: str, name: str) -> Any:
    """Return the kernel that a module defines."""
    return attrgetter(name)(import_module(module))


def _compile_kernel(find: Callable[[], Any], signature: Any) -> None:
    """Compile a kernel for a signature."""
    find().compile(signature)


def njit(*, allocates: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return ``numba.njit`` with these options and a cache in this project's folder.

    Parameters
    ----------
    allocates : bool
        False for kernels that create no arrays and return none, nor do those that they call. Numba then counts no
        references to arrays, which takes about a third of the time of compiling. Such a kernel would never release an
        array, or view, that it gets from another one: it is refused when it is compiled.
    **options : Any
        Options of ``numba.njit``.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        kernel = _checked(numba.njit(no_cfunc_wrapper=True, _nrt=allocates, **options)(function), allocates)
        return interpretable(_with_cache(_with_own_compilation(_share_constants(kernel)), FunctionCache))

    return decorate


def uncached_njit(*, allocates: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """Return ``numba.njit`` for functions that are stored only as parts of other kernels; see :func:`njit`."""
    return lambda function: interpretable(_checked(numba.njit(_nrt=allocates)(function), allocates))


def _checked(kernel: Any, allocates: bool) -> Any:
    """Refuse to compile a kernel that counts no references but gets arrays from other kernels, or returns arrays.

    Numba itself refuses all other arrays there: those that are created, and those that its own functions return.
    """
    compiler = getattr(kernel, "_compiler", None)
    if allocates or compiler is None:  # kernels without a compiler are interpreted
        return kernel
    compile_kernel = compiler.compile

    def compile_checked(args: Any, return_type: Any) -> Any:
        compiled = compile_kernel(args, return_type)
        models, types = compiled.target_context.data_model_manager, compiled.type_annotation.typemap
        arrays = {"returns an array": compiled.signature.return_type}
        for expression, signature in compiled.type_annotation.calltypes.items():
            function = types.get(expression.func.name) if getattr(expression, "op", None) == "call" else None
            if isinstance(function, numba.types.Dispatcher):
                arrays[f"gets an array from {function.dispatcher.py_func.__name__}"] = signature.return_type
        for reason, type_of_value in arrays.items():
            if models[type_of_value].contains_nrt_meminfo():
                raise numba.TypingError(f"{kernel.py_func.__name__} counts no references, but {reason}")
        return compiled

    compiler.compile = compile_checked
    return kernel


def cuda_jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return ``numba.cuda.jit`` for a kernel, with a cache in this project's folder; the simulator ignores the options.

    With the environment variable ``DMCMC_CHECK_KERNELS=1``, kernels are compiled without optimisation and check every
    index of an array: a launch with an index out of range raises an IndexError. Such kernels are slow.

    Parameters
    ----------
    **options : Any
        Options of ``numba.cuda.jit``, such as ``max_registers`` (registers per thread).
    """

    def decorate(function: Callable[..., Any]) -> Any:
        from numba import cuda

        if numba.config.ENABLE_CUDASIM:
            return cuda.jit(function)
        _compile_once()
        if os.environ.get("DMCMC_CHECK_KERNELS") == "1":
            _check_array_indices()
            return cuda.jit(debug=True, opt=False, **options)(function)
        from numba.cuda.dispatcher import CUDACache

        return _with_cache(cuda.jit(**options)(function), CUDACache)

    return decorate


@cache
def _compile_once() -> None:
    """Let Numba compile a GPU kernel once, not twice, to the same code.

    It compiles a kernel to PTX only to look there for calls of its own library, which stand in the LLVM code as well.
    What it loads is compiled afterwards, with optimisation at link time.
    """
    with suppress(ImportError, AttributeError):
        from numba.cuda.codegen import CUDACodeLibrary

        CUDACodeLibrary.get_asm_str = lambda library, cc=None: library.get_llvm_str()


@cache
def _check_array_indices() -> None:
    """Let Numba's code generator for GPUs check array indices, which it never does by default.

    Kernels with ``debug=True`` report a failed check after their launch. They are compiled without debug information:
    with it, NVIDIA's linker can end in a segmentation fault.
    """
    from numba.cuda import dispatcher
    from numba.cuda.target import CUDATargetContext

    CUDATargetContext.enable_boundscheck = True
    compile_with_information = dispatcher.compile_cuda

    def compile_cuda(*arguments: Any, debug: bool = False, nvvm_options: Any = None, **options: Any) -> Any:
        plain = {name: value for name, value in (nvvm_options or {}).items() if name != "g"}
        return compile_with_information(*arguments, debug=False, nvvm_options=plain, **options)

    dispatcher.compile_cuda = compile_cuda


def cuda_inline(function: Callable[..., Any]) -> Any:
    """Return a device function that is always inlined into its callers, whatever its length.

    A function that is not inlined does not know that its arrays are in shared memory, and uses slower instructions.
    """
    from numba import cuda

    if numba.config.ENABLE_CUDASIM:
        return cuda.jit(device=True)(function)
    return cuda.jit(device=True, forceinline=True)(function)


def device_function(kernel: Any) -> Any:
    """Return a device function with the source of a CPU kernel, so that both do the same arithmetic."""
    from numba import cuda

    return cuda.jit(device=True)(getattr(kernel, "py_func", kernel))


def writable(array: Array) -> Array:
    """Return the array, or a copy if it is read-only, so that kernels are not compiled for both variants."""
    return array if array.flags.writeable else array.copy()


def writable_once(array: Array) -> Array:
    """Return the array, or a shared writable copy if it is read-only; the copy lives as long as the array.

    Callers must not modify the copy. Data that many objects hold, such as the domain sizes of the whole problem in the
    plan of each agent, is thus copied once.
    """
    if array.flags.writeable:
        return array
    key = id(array)
    copied = _COPIES.get(key)
    if copied is None or copied[0]() is not array:
        copied = weakref.ref(array, lambda _: _COPIES.pop(key, None)), array.copy()
        _COPIES[key] = copied
    return copied[1]


def _share_constants(kernel: Any) -> Any:
    """Compile a kernel that other kernels call with constants once per type instead of once per constant."""
    template = getattr(kernel, "get_call_template", None)
    if template is not None:  # kernels without a template are interpreted

        def get_call_template(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
            keyword_types = {name: numba.types.unliteral(argument_type) for name, argument_type in kws.items()}
            return template(tuple(map(numba.types.unliteral, args)), keyword_types)

        kernel.get_call_template = get_call_template
    return kernel


class Kernel(CPUDispatcher):  # type: ignore[misc]
    """A kernel of this project: Numba's dispatcher, with two forms of compiled code.

    One is for Python, the other for kernels that call it (:mod:`dmcmc.inference.storage.loaded_library`).
    """

    def compile(self, sig: Any) -> Any:
        """Compile or load the kernel for a signature; return its entry point."""
        if _SUPPLIERS and not compiles_kernel() and not self.is_available(sig) and (supplier := _supplier()):
            supplier.supply(self, sig)
        with global_compiler_lock:
            if not compiles_kernel():
                arguments = tuple(normalize_signature(sig)[0])
                if arguments in self.overloads and is_for_linking(self.overloads[arguments]):
                    del self.overloads[arguments]
            return super().compile(sig)

    def is_available(self, sig: Any) -> bool:
        """Return whether the kernel's code for Python is loaded or stored."""
        loaded = self.overloads.get(tuple(normalize_signature(sig)[0]))
        if loaded is not None:
            return not is_for_linking(loaded)
        return bool(self._cache.is_stored(sig, self.targetctx)) if hasattr(self._cache, "is_stored") else True

    def add_overload(self, cres: Any) -> None:
        """Make a compiled form available; Python can call it unless it is for linking."""
        if is_for_linking(cres):
            self.overloads[tuple(cres.signature.args)] = cres
        else:
            super().add_overload(cres)


def _with_own_compilation(kernel: Any) -> Any:
    """Compile a kernel with a large block of Python's stack, in one process at a time, and for linking if possible."""
    compiler = getattr(kernel, "_compiler", None)
    if compiler is None:  # kernels without a compiler are interpreted
        return kernel
    kernel.__class__ = Kernel
    compile_here = with_large_stack(compiler.compile)

    def compile_once(args: Any, return_type: Any) -> Any:
        def compile_kernel() -> Any:
            return compile_here(args, return_type)

        if not hasattr(kernel._cache, "compile_once"):
            return compile_kernel()
        signature = args if return_type is None else return_type(*args)
        return kernel._cache.compile_once(signature, kernel.targetctx, compile_kernel)

    compiler.compile, compiler._customize_flags = compile_once, adapt_flags(compiler._customize_flags)
    return kernel


def with_large_stack(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls another function with half a MiB of Python's stack in one block."""

    def call(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    call.__code__ = call.__code__.replace(co_stacksize=_FRAME_SLOTS)
    return call


def _with_cache(kernel: Any, numba_cache: Any) -> Any:
    """Enable caching for a compiled function; functions that are interpreted stay unchanged."""
    if hasattr(kernel, "enable_caching"):
        kernel._cache = LazyCache(kernel, numba_cache)
    return kernel


@contextmanager
def release_compiler_metadata() -> Iterator[None]:
    """Release, at the end of the block, the metadata of all kernels that were compiled in it."""
    dispatchers: dict[int, Any] = {}
    try:
        with event.install_listener("numba:compile", _AfterCompilation(lambda one: dispatchers.update({id(one): one}))):
            yield
    finally:
        for dispatcher in dispatchers.values():
            for compiled in dispatcher.overloads.values():
                with suppress(AttributeError):  # private attributes of Numba may change
                    _drop_metadata(compiled)
        if dispatchers:
            gc.collect(1)
            with suppress(OSError, AttributeError):  # other systems release memory themselves, or cannot
                ctypes.CDLL("libc.so.6").malloc_trim(0)


def _drop_metadata(compiled: Any) -> None:
    """Drop the metadata of a compiled kernel that neither its calls nor its callers' compilation need."""
    library, types = compiled.library, compiled.type_annotation
    if any(
        True for _ in library._final_module.functions
    ):  # otherwise it was loaded from disk and has only the shared module
        library._shared_module = None
    if not isinstance(types, str | None):
        types.blocks, types.typemap, types.calltypes = {}, {}, {}
