"""Load compiled kernels for Python without their LLVM code, which only the compiler needs.

Numba stores each kernel as machine code, and as LLVM code for kernels that call it. It parses the LLVM code whenever it
loads a kernel, which is half of the time of loading. Here, the LLVM code is parsed when it is first needed.
"""

from functools import cache
from typing import Any, NamedTuple


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
