"""Under Numba's simulator the thread that launches a kernel asks all others all the time whether they have ended.

It takes the interpreter lock for that, half of the time and more. Here it waits a moment before each question.
"""

import threading
import time

from numba import config

if config.ENABLE_CUDASIM:
    from numba.cuda.simulator.kernel import BlockThread

    def is_alive(thread: threading.Thread) -> bool:
        """Answer, after a moment that the others may use."""
        time.sleep(1e-6)
        return threading.Thread.is_alive(thread)

    BlockThread.is_alive = is_alive
