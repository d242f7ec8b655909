"""Products of matrices on the thread that asks for them: whoever wants several at once has threads of his own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LOCK = threading.Lock()
_ONE: dict[str, Any] = {"users": 0, "limits": None}


@contextmanager
def products_on_one_thread() -> Iterator[None]:
    """Keep NumPy's products from taking more threads; on any number of threads at once.

    The setting is the process's: the first one sets it, the last one puts it back.
    """
    from threadpoolctl import threadpool_limits  # takes some hundredths of a second

    with _LOCK:
        _ONE["users"] += 1
        if _ONE["users"] == 1:
            _ONE["limits"] = threadpool_limits(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _LOCK:
            _ONE["users"] -= 1
            if _ONE["users"] == 0:
                _ONE["limits"].restore_original_limits()
