"""Run NumPy's matrix products on the calling thread only, for callers that run several of them on their own threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LOCK = threading.Lock()
# Number of threads inside the block, and the object that restores the previous limit (None before the first use).
_STATE: dict[str, Any] = {"users": 0, "limits": None}


@contextmanager
def products_on_one_thread() -> Iterator[None]:
    """Limit NumPy's matrix products to one thread each inside the block; threads may enter it concurrently.

    The limit applies to the whole process: the first user sets it and the last one restores the previous limit.
    """
    from threadpoolctl import threadpool_limits  # importing it takes some hundredths of a second

    with _LOCK:
        _STATE["users"] += 1
        if _STATE["users"] == 1:
            _STATE["limits"] = threadpool_limits(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _LOCK:
            _STATE["users"] -= 1
            if _STATE["users"] == 0:
                _STATE["limits"].restore_original_limits()
