"""What the compiler keeps of kernels that are done, and nobody needs any more.

It stays as long as the process does, beside a run that may have little memory: each kernel's intermediate code twice,
once for callers that are still to be compiled, which is made again where one is; and the types of all its expressions.
"""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from numba.core import event


class _Done(event.Listener):  # type: ignore[misc]
    """Remembers what was compiled."""

    def __init__(self) -> None:
        self.dispatchers: dict[int, Any] = {}

    def on_start(self, event: Any) -> None:
        """Do nothing."""

    def on_end(self, event: Any) -> None:
        """Remember one more."""
        self.dispatchers[id(event.data["dispatcher"])] = event.data["dispatcher"]


@contextmanager
def leftovers_returned() -> Iterator[None]:
    """Give back, when the block is done, what compiling in it has left."""
    done = _Done()
    try:
        with event.install_listener("numba:compile", done):
            yield
    finally:
        for dispatcher in done.dispatchers.values():
            for compiled in dispatcher.overloads.values():
                with suppress(AttributeError):  # these are no promises of Numba's
                    _give_back(compiled)
        if done.dispatchers:
            gc.collect(1)
            with suppress(OSError, AttributeError):  # other systems do it by themselves, or cannot
                ctypes.CDLL("libc.so.6").malloc_trim(0)


def _give_back(compiled: Any) -> None:
    """Let go of what a kernel's result holds besides what it takes to call it, and to compile what calls it."""
    library, types = compiled.library, compiled.type_annotation
    if any(True for _ in library._final_module.functions):  # else it was read from the disk, and has but this one
        library._shared_module = None
    if not isinstance(types, str | None):
        types.blocks, types.typemap, types.calltypes = {}, {}, {}
