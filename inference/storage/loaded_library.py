"""Kernels as they are stored for linking and for loading.

Compile a kernel that only another kernel needs without machine code and without an entry point for Python.

Numba compiles each kernel that a kernel calls as if Python would call it: optimised in full, with machine code, and
with an entry point that unpacks Python's arguments. The caller then uses only the LLVM code, which it optimises again
with its own. Most kernels of this project are called by kernels, so this was half of all compilation.

Here, a kernel whose compilation began inside another kernel's gets only the cheap optimisation that inlines functions,
and stays LLVM code. If Python calls it later, it is compiled again for Python. The two forms have different keys in the
cache. All functions that are compiled inside a kernel of this project are treated so, also those of Numba.

This replaces methods of Numba's private classes. If one of them is missing, everything is compiled as Numba does it.

Load compiled kernels for Python without their LLVM code, which only the compiler needs.

Numba stores each kernel as machine code, and as LLVM code for kernels that call it. It parses the LLVM code whenever it
loads a kernel, which is half of the time of loading. Here, the LLVM code is parsed when it is first needed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from numba.core import event

_PROJECT = "dmcmc."  # prefix of the modules whose kernels are treated so
_MARK = "_dmcmc_for_linking"  # attribute of libraries without machine code


class _CompilationDepth(event.Listener):  # type: ignore[misc]
    """Counts the nested compilations; the compiler's lock admits one thread at a time.

    Attributes
    ----------
    depth : int
        Number of kernels whose compilation has begun and not ended; 0 between compilations.
    is_ours : bool
        Whether the outermost of them is a kernel of this project.
    thread : int
        Identity of the thread that compiles.
    """

    def __init__(self) -> None:
        self.depth, self.is_ours, self.thread = 0, False, 0

    def on_start(self, event: Any) -> None:
        """Count one more level."""
        if self.depth == 0:
            self.is_ours = event.data["dispatcher"].py_func.__module__.startswith(_PROJECT) and _replace_methods()
            self.thread = threading.get_ident()
        self.depth += 1

    def on_end(self, event: Any) -> None:
        """Count one level less."""
        self.depth -= 1


_compilation = _CompilationDepth()
event.register("numba:compile", _compilation)


def compiles_kernel() -> bool:
    """Return whether this thread is compiling a kernel of this project, so that other kernels are linked to it."""
    return _compilation.depth >= 1 and _compilation.is_ours and _compilation.thread == threading.get_ident()


def compiles_for_linking() -> bool:
    """Return whether what this thread compiles now is called by kernels only."""
    return _compilation.depth >= 2 and compiles_kernel()


def is_for_linking(compiled: Any) -> bool:
    """Return whether a compilation result has no machine code."""
    return hasattr(compiled.library, _MARK)


@contextmanager
def compilation_for_python() -> Iterator[None]:
    """Treat what is loaded in the block as called from Python, also inside the compilation of another kernel."""
    outer, _compilation.depth = _compilation.depth, 0
    try:
        yield
    finally:
        _compilation.depth = outer


def adapt_flags(customise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a method that chooses a kernel's compilation flags: no entry point for Python where none is needed."""

    def customise_flags(flags: Any) -> Any:
        flags = customise(flags)
        if compiles_for_linking():
            flags.no_cpython_wrapper = True
        return flags

    return customise_flags


class LinkedKernel(NamedTuple):
    """What is stored of a kernel without machine code.

    Attributes
    ----------
    name : str
        Name of its library.
    bitcode : bytes
        Its LLVM code, with all functions that it calls.
    fndesc, environment, signature : object
        Numba's description of the function, its environment, and its signature.
    annotation : str
        Types of its expressions, for people.
    reload_init : list of callables
        Functions that initialise what the kernel uses.
    """

    name: str
    bitcode: bytes
    fndesc: Any
    environment: Any
    signature: Any
    annotation: str
    reload_init: list[Callable[[], None]]


def serialise_for_linking(compiled: Any) -> LinkedKernel:
    """Return a compilation result without machine code as data that can be pickled."""
    compiled.fndesc.typemap = compiled.fndesc.calltypes = None
    return LinkedKernel(
        compiled.library.name, compiled.library._final_module.as_bitcode(), compiled.fndesc, compiled.environment,
        compiled.signature, str(compiled.type_annotation), compiled.reload_init,
    )  # fmt: skip


def rebuild_for_linking(target_context: Any, stored: LinkedKernel) -> Any:
    """Return the compilation result that :func:`serialise_for_linking` has stored."""
    from llvmlite import binding
    from numba.core.compiler import compile_result

    for initialise in stored.reload_init:
        initialise()
    library = target_context.codegen().create_library(stored.name)
    library._final_module = binding.parse_bitcode(stored.bitcode)
    library._finalized = True
    setattr(library, _MARK, True)
    return compile_result(
        target_context=target_context, typing_context=target_context.typing_context, library=library,
        environment=stored.environment, entry_point=_unreachable_entry(library, stored.fndesc, stored.environment),
        fndesc=stored.fndesc, type_annotation=stored.annotation, signature=stored.signature, objectmode=False,
        reload_init=stored.reload_init, referenced_envs=(),
    )  # fmt: skip


def _unreachable_entry(library: Any, fndesc: Any, environment: Any) -> Any:
    """Return an object that stands for a kernel without machine code; nothing may call it."""
    from numba import _dynfunc

    name = fndesc.qualname.split(".")[-1]
    return _dynfunc.make_function(fndesc.lookup_module(), name, "LLVM code only", 0, environment, (library,))


@cache
def _replace_methods() -> bool:
    """Replace the methods of Numba that optimise and emit code; return False if Numba does not have them."""
    from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary, JITCPUCodegen
    from numba.core.cpu import CPUContext

    try:
        executable, emit = CPUContext.get_executable, JITCodeLibrary._finalize_specific
        add_module, optimise = JITCPUCodegen._add_module, CPUCodeLibrary._optimize_final_module
        _ = JITCPUCodegen._module_pass_manager
    except AttributeError:
        return False

    def get_executable(context: Any, library: Any, fndesc: Any, environment: Any) -> Any:
        if not compiles_for_linking():
            return executable(context, library, fndesc, environment)
        library._ensure_finalized()
        setattr(library, _MARK, True)
        return _unreachable_entry(library, fndesc, environment)

    def finalise_specific(library: Any) -> None:
        if not compiles_for_linking():
            emit(library)

    def add_module_of(codegen: Any, module: Any) -> Any:
        return None if compiles_for_linking() else add_module(codegen, module)

    def optimise_final_module(library: Any) -> None:
        if not compiles_for_linking():
            optimise(library)
            return
        passes, builder = library._codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
        )
        passes.run(library._final_module, builder)

    CPUContext.get_executable, JITCodeLibrary._finalize_specific = get_executable, finalise_specific
    JITCPUCodegen._add_module, CPUCodeLibrary._optimize_final_module = add_module_of, optimise_final_module
    return True


class StoredKernel(NamedTuple):
    """What Numba stores of a kernel, in its order (``CompileResult._reduce``).

    Attributes
    ----------
    library : tuple
        The name of the library, the kind of its contents, and these.
    fndesc, environment, signature : object
        Numba's description of the function, its environment, and its signature.
    objectmode : bool
        Whether the kernel uses Python objects.
    loops : tuple
        Loops that were compiled apart; none in a kernel that can be stored.
    annotation : str
        Types of its expressions, for people.
    reload_init : list of callables
        Functions that initialise what the kernel uses.
    referenced_envs : tuple
        Environments of the kernels that it calls.
    """

    library: Any
    fndesc: Any
    environment: Any
    signature: Any
    objectmode: bool
    loops: Any
    annotation: Any
    reload_init: Any
    referenced_envs: Any


def rebuild_for_python(target_context: Any, payload: Any) -> Any:
    """Return the compilation result that Numba has stored as ``payload``, with its LLVM code not parsed yet."""
    from numba.core.compiler import compile_result

    stored = StoredKernel(*payload)
    for initialise in stored.reload_init or ():
        initialise()
    library = _library_class().of(target_context.codegen(), stored.library, stored.fndesc.llvm_cpython_wrapper_name)
    entry_point = target_context.get_executable(library, stored.fndesc, stored.environment)
    for environment in stored.referenced_envs:
        library.codegen.set_env(environment.env_name, environment)
    return compile_result(
        target_context=target_context, typing_context=target_context.typing_context, library=library,
        environment=stored.environment, entry_point=entry_point, fndesc=stored.fndesc,
        type_annotation=stored.annotation, signature=stored.signature, objectmode=stored.objectmode,
        reload_init=stored.reload_init, referenced_envs=stored.referenced_envs,
    )  # fmt: skip


@cache
def _library_class() -> Any:
    """Return a subclass of Numba's class of compiled libraries whose LLVM code is parsed at its first use."""
    from llvmlite import binding
    from numba.core.codegen import JITCodeLibrary

    class LoadedLibrary(JITCodeLibrary):  # type: ignore[misc]
        """A library of machine code that was loaded from a file."""

        _parsed: Any = None
        _bitcode: bytes | None = None  # LLVM code that is not parsed yet
        _entry: str = ""  # name of the function that Python calls

        @classmethod
        def of(cls, codegen: Any, contents: Any, entry: str) -> Any:
            """Return a library with stored contents, of which Python calls the function named ``entry``."""
            name, kind, code = contents
            if kind != "object":
                return codegen.unserialize_library(contents)
            library = cls(codegen, name)
            library.enable_object_caching()
            library._set_compiled_object(code[0])
            library._finalize_final_module()
            library._bitcode, library._entry = code[1], entry
            return library

        @property
        def _shared_module(self) -> Any:
            """The LLVM code for kernels that call this one; Numba reads and sets it by this name."""
            if self._bitcode is not None:
                self._parsed, self._bitcode = binding.parse_bitcode(self._bitcode), None
                self._codegen._engine._load_defined_symbols(self._parsed)
            return self._parsed

        @_shared_module.setter
        def _shared_module(self, module: Any) -> None:
            self._parsed = module

        def get_pointer_to_function(self, name: str) -> Any:
            """Return the address of a function; only that of the entry is known without the LLVM code."""
            if name == self._entry:
                return self._codegen._engine.get_function_address(name)
            _ = self._shared_module
            return super().get_pointer_to_function(name)

    return LoadedLibrary
