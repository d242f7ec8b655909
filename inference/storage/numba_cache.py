"""Numba's cache of compiled kernels, in files with a checksum and without an index.

Numba keeps the kernels of a function in several files that an index lists; the index and the kernels are pickled. A
damaged file ends the program, and processes that write at once can exchange two kernels. Here, each kernel is one file
that is written atomically. Its name and its checksum depend on everything that the kernel depends on, and it is
verified before it is unpickled.

No failure of the cache ends a run: a kernel that cannot be loaded is compiled and replaced, and a kernel that cannot be
stored is used from memory. Both are reported once per process.

Locks by which processes agree that only one of them compiles a kernel.

All processes lock bytes of one file in the kernel folder; the position of the byte is a digest of the kernel's key. The
system releases the locks of a process that ends, in whatever way. A lock is an optimisation: without one, two processes
compile the same kernel and store the same file.
"""

import hashlib
import inspect
import os
import pickle
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import entrypoints
from numba.core.caching import FunctionCache, NullCache
from numba.core.runtime import rtsys

from dmcmc.inference.storage.cache_folders import (
    delete_markers,
    kernel_file,
    kernel_folder,
    make_folder,
    report_once,
    report_unsaved,
    sources_digest,
    stored_kernels,
)
from dmcmc.inference.storage.checked_file import CachedFileError, read_checked, write_checked
from dmcmc.inference.storage.loaded_library import (
    LinkedKernel,
    compilation_for_python,
    compiles_for_linking,
    compiles_kernel,
    is_for_linking,
    rebuild_for_linking,
    rebuild_for_python,
    serialise_for_linking,
)

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FILE_NAME = "locks"
_POSITION_BYTES = 7  # bytes of the digest: positions are below 2^56, which all systems allow
_HELD = threading.local()


@contextmanager
def lock_kernel(folder: Path, key: str) -> Iterator[bool]:
    """Hold the lock of a kernel in the block; wait if another process holds it.

    Parameters
    ----------
    folder : Path
        The kernel folder.
    key : str
        What distinguishes the kernel from all others.

    Yields
    ------
    bool
        Whether no other process held the lock: nobody else has just compiled the kernel.
    """
    position = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=_POSITION_BYTES).digest(), "big")
    held: set[int] = _HELD.__dict__.setdefault("positions", set())
    descriptor = None if fcntl is None or position in held else _descriptor(str(folder), os.getpid())
    if descriptor is None:
        yield True
        return
    free = _lock(descriptor, position)
    held.add(position)
    try:
        yield free
    finally:
        held.discard(position)
        with suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, position)


def _lock(descriptor: int, position: int) -> bool:
    """Lock a byte; return whether it was free. Without support by the file system, return True."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, position)
        return True
    except BlockingIOError:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, position)
        except OSError:  # another process waits for this one
            return True
        return False
    except OSError:
        return True


@cache
def _descriptor(folder: str, process: int) -> int | None:
    """Open the file of locks for this process; return None if that is not possible.

    It stays open: closing any descriptor of the file would release all locks of the process.
    """
    try:
        return os.open(os.path.join(folder, _FILE_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


_LOCK = threading.RLock()
_MAX_REASON_CHARACTERS = 1000  # of a message: paths may have some hundred
_NAME_LETTERS = 100  # letters of a kernel's name in the name of its file, of which systems allow 255
_KEY_BYTES = 16  # bytes of the digest in the name of a file: two of 10^9 kernels share it with probability 10^-21
_unsaved_kernels = 0


def unsaved_kernels() -> int:
    """Return how many kernels this process could not store."""
    return _unsaved_kernels


class LazyCache:
    """Stands in for a kernel's cache until its first use, because one run uses few kernels.

    Parameters
    ----------
    kernel : dispatcher
        The compiled function. Its attribute ``_cache`` is replaced at the first use.
    numba_cache : type
        Numba's class of caches for such kernels: its ``FunctionCache`` or ``CUDACache``.
    """

    def __init__(self, kernel: Any, numba_cache: Any) -> None:
        self._kernel, self._numba_cache = kernel, numba_cache

    def __getattr__(self, name: str) -> Any:
        kernel = self._kernel
        with _LOCK:
            # Other threads see this object until the kernel has its cache, so that no compilation stays unsaved.
            if kernel._cache is self:
                kernel._cache = _cache_of(kernel.py_func, self._numba_cache)
        return getattr(kernel._cache, name)


def _cache_of(function: Callable[..., Any], numba_cache: Any) -> Any:
    """Return the cache of a compiled function; without a folder, or a file with its source, it keeps nothing."""
    folder, source = kernel_folder(), Path(inspect.getfile(function))
    return _cache_class(numba_cache)(function) if folder is not None and source.is_file() else NullCache()


@cache
def _source_digest(source: str) -> str:
    """Return a digest of a file's contents."""
    return hashlib.blake2b(Path(source).read_bytes(), digest_size=_KEY_BYTES).hexdigest()


class _KernelFiles:
    """The files with the compiled kernels of one function, by Numba's keys: signature, processor and bytecode.

    It has the methods of Numba's ``IndexDataCacheFile``, and its function ``dump`` that pickles kernels.
    """

    def __init__(self, folder: Path, function: Callable[..., Any], dump: Callable[[Any], bytes]) -> None:
        name = f"{function.__module__}.{function.__qualname__}".removeprefix("dmcmc.")
        versions = f"{sys.version} {numba.__version__} {sources_digest()} {_source_digest(inspect.getfile(function))}"
        self._folder, self._dump = folder, dump
        self.name = name
        self._name = re.sub(r"[^\w.]", "", name)[-_NAME_LETTERS:]
        self._context = f"{name}:{function.__code__.co_firstlineno} {versions}"

    def load(self, key: Any) -> Any:
        """Return the data that was stored under a key, or None."""
        contents = read_checked(*self._place(key))
        if contents is None:
            return None
        stored_key, data = pickle.loads(contents)
        return data if stored_key == key else None

    def save(self, key: Any, data: Any) -> None:
        """Store data under a key."""
        write_checked(*self._place(key), self._dump((key, data)))

    def has(self, key: Any) -> bool:
        """Return whether something is stored under a key."""
        return self._place(key)[0].is_file()

    def flush(self) -> None:
        """Delete all files of this function."""
        for path in stored_kernels(self._folder, self._name):
            path.unlink(missing_ok=True)

    def _place(self, key: Any) -> tuple[Path, str]:
        """Return the file for a key, and the text that the file's checksum includes."""
        text = f"{self._context} {key!r}"
        digest = hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).hexdigest()
        return kernel_file(self._folder, self._name, digest), text


class _Location:
    """What Numba asks about the place of a function's cache; it has the methods of Numba's ``_CacheLocator``."""

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._py_file, self._folder = inspect.getfile(function), folder

    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(self._folder)

    def get_source_stamp(self) -> str:
        """Return a digest of the function's source file."""
        return _source_digest(self._py_file)

    def ensure_cache_path(self) -> None:
        """Create the folder, if it has been deleted."""
        make_folder(self._folder)


@cache
def _implementation(numba_cache: Any) -> Any:
    """Return a subclass of the class by which one of Numba's caches serialises kernels."""

    class Implementation(numba_cache._impl_class):  # type: ignore[misc]
        """How kernels are serialised, from Numba; it does not search for a folder.

        Kernels that are only linked to others have a form of their own.
        """

        def __init__(self, py_func: Callable[..., Any]) -> None:
            self._lineno = py_func.__code__.co_firstlineno
            self._locator = _Location(py_func, kernel_folder() or Path())
            self._filename_base = f"{py_func.__module__}.{py_func.__qualname__}-{self._lineno}"

        def reduce(self, data: Any) -> Any:
            """Return a compiled kernel as data that can be pickled."""
            return serialise_for_linking(data) if _for_linking(data) else super().reduce(data)

        def rebuild(self, target_context: Any, payload: Any) -> Any:
            """Return the compiled kernel that :meth:`reduce` has made data of."""
            if type(payload) is LinkedKernel:
                return rebuild_for_linking(target_context, payload)
            if numba_cache is FunctionCache:
                return rebuild_for_python(target_context, payload)
            return super().rebuild(target_context, payload)

    return Implementation


@cache
def _cache_class(numba_cache: Any) -> Any:  # long: one class with its methods
    """Return a subclass of one of Numba's classes of caches that stores kernels in :class:`_KernelFiles`."""

    class CheckedCache(numba_cache):  # type: ignore[misc]
        """A cache that reports failures instead of raising errors."""

        _impl_class = _implementation(numba_cache)
        _cache_file: Any
        _is_linked = False  # whether the kernel that is loaded or stored now is for linking
        _stored: Any = None  # the kernel that compile_once has stored; Numba asks for it again

        def __init__(self, py_func: Callable[..., Any]) -> None:
            super().__init__(py_func)
            self._cache_file = _KernelFiles(Path(self._cache_path), py_func, self._cache_file._dump)

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            """Load a kernel from the disk, or return None."""
            return self._load(sig, target_context, compiles_kernel())

        def _load(self, sig: Any, target_context: Any, for_linking: bool) -> Any:
            """Load a kernel for Python or for linking, or return None."""
            try:
                if numba_cache is FunctionCache:
                    return self._load_on_cpu(sig, target_context, for_linking)
                return super().load_overload(sig, target_context)
            except Exception as error:  # unpickling may raise anything
                delete_markers(Path(self._cache_path))
                _report_unusable(error)
                return None

        def is_stored(self, sig: Any, target_context: Any) -> bool:
            """Return whether a kernel for Python is stored."""
            key = super()._index_key(sig, target_context.codegen())
            return bool(self._cache_file.has(key))

        def save_overload(self, sig: Any, data: Any) -> None:
            """Store a compiled kernel on the disk."""
            global _unsaved_kernels
            if data is self._stored:  # by compile_once, just now
                self._stored = None
                return
            try:
                self._is_linked = _for_linking(data)
                super().save_overload(sig, data)
            except Exception as error:  # pickling may raise anything
                _unsaved_kernels += 1
                _report_unsaved(self._cache_path, error)

        def compile_once(self, sig: Any, target_context: Any, compile_kernel: Callable[[], Any]) -> Any:
            """Compile and store a kernel, unless another process does it now: then wait, and load the kernel."""
            with lock_kernel(Path(self._cache_path), f"{self._cache_file.name} {sig} {compiles_for_linking()}") as free:
                found = None if free else self._load(sig, target_context, compiles_for_linking())
                if found is None:
                    found = compile_kernel()
                    self.save_overload(sig, found)
                else:  # as Numba does for a kernel that it loads
                    target_context.insert_user_function(found.entry_point, found.fndesc, [found.library])
                self._stored = found
                return found

        def _index_key(self, sig: Any, codegen: Any) -> Any:
            """Return the key of a kernel; kernels that are only linked to others have a key of their own."""
            key = super()._index_key(sig, codegen)
            return ("linked", *key) if self._is_linked else key

        def _load_on_cpu(self, sig: Any, target_context: Any, for_linking: bool) -> Any:
            """Load a kernel, or return None; do not import what only the compiler needs.

            The compiler imports that itself when it starts. Compiled code needs what it calls by name: the memory
            management of arrays, hashes, and the functions of extensions. Inside the compilation of another kernel,
            the form for linking is preferred.
            """
            import numba.cpython.hashing  # noqa: F401  # imported late: processes that load no kernel do not need it

            rtsys.initialize(target_context)
            entrypoints.init_all()
            self._is_linked = for_linking
            kernel = self._load_overload(sig, target_context) if for_linking else None
            if kernel is None:
                self._is_linked = False
                with compilation_for_python():
                    kernel = self._load_overload(sig, target_context)
            return kernel

    return CheckedCache


def _for_linking(data: Any) -> bool:
    """Return whether compiled data is a CPU kernel that is only linked to others."""
    return hasattr(data, "library") and is_for_linking(data)


def _report_unusable(error: Exception) -> None:
    """Report a kernel that cannot be loaded."""
    reason = str(error) if isinstance(error, CachedFileError | OSError) else f"{type(error).__name__}: {error}"
    report_once("unusable kernel", f"a cached kernel is compiled again: {_one_line(reason)}")


def _report_unsaved(folder: str, error: Exception) -> None:
    """Report a kernel that cannot be stored."""
    reason = error.strerror or str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    report_unsaved(folder, _one_line(reason))


def _one_line(text: str) -> str:
    """Return a text as one line of limited length."""
    return " ".join(text.split())[:_MAX_REASON_CHARACTERS]
