"""The process that compiles kernel sets for a run: reads them from standard input, and fills the cache.

Numba's compiler holds Python's interpreter lock, so that a run could not work while a thread of it compiles. The
process receives pickled kernel sets from the run that has started it, and nobody else can write to that pipe. For each
it writes one line of JSON: the processor seconds of the process so far, and whether all kernels are stored. It ends
when the run closes the pipe, also in the middle of a compilation. With the argument ``later`` it has a low priority.
"""

import json
import os
import pickle
import queue
import signal
import sys
import threading
import time
from typing import Any

from dmcmc.inference.runtime.threads import lower_priority


def main() -> None:
    """Compile kernel sets until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then closes the pipe
    replies, requests = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0), "rb")
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY)):  # nothing else may read or write the pipes
        os.dup2(os.open(os.devnull, flags), descriptor)
    if "later" in sys.argv[1:]:
        lower_priority()
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests, received), daemon=True).start()
    while True:
        stored = _compile(received.get())
        replies.write(json.dumps({"seconds": time.process_time(), "stored": stored}) + "\n")
        replies.flush()


def _receive(requests: Any, received: "queue.SimpleQueue[Any]") -> None:
    """Pass on the kernel sets from the pipe; end the process when it is closed."""
    while True:
        try:
            received.put(pickle.load(requests))
        except Exception:  # the end of the pipe, or a kernel set that this process cannot import
            os._exit(0)


def _compile(kernels: Any) -> bool:
    """Compile a kernel set; return whether all of its kernels are stored."""
    from dmcmc.compilation.kernel_supply import compiling_for_others
    from dmcmc.inference.storage.numba_cache import unsaved_kernels

    unsaved = unsaved_kernels()
    try:
        with compiling_for_others():
            kernels.compile()
    except Exception:  # the run itself reports the error when it does this work
        return False
    return unsaved_kernels() == unsaved


if __name__ == "__main__":
    main()
    sys.exit(0)
