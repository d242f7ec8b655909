"""Release compiler metadata that compiled kernels no longer need.

Numba keeps it until the process ends: the intermediate code of each kernel twice (once for callers that are compiled
later, which Numba can recreate), and the types of all its expressions. This memory would reduce what a run can use.
"""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from numba.core import event


class _CompiledDispatchers(event.Listener):  # type: ignore[misc]
    """Records the dispatchers that were compiled."""

    def __init__(self) -> None:
        self.dispatchers: dict[int, Any] = {}

    def on_start(self, event: Any) -> None:
        """Do nothing when a compilation starts."""

    def on_end(self, event: Any) -> None:
        """Record the dispatcher that was compiled."""
        self.dispatchers[id(event.data["dispatcher"])] = event.data["dispatcher"]


@contextmanager
def release_compiler_metadata() -> Iterator[None]:
    """Release, at the end of the block, the metadata of all kernels that were compiled in it."""
    recorder = _CompiledDispatchers()
    try:
        with event.install_listener("numba:compile", recorder):
            yield
    finally:
        for dispatcher in recorder.dispatchers.values():
            for compiled in dispatcher.overloads.values():
                with suppress(AttributeError):  # private attributes of Numba may change
                    _drop_metadata(compiled)
        if recorder.dispatchers:
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
