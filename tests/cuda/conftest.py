"""Under Numba's simulator the thread that launches a kernel asks all others all the time whether they have ended.

It takes the interpreter lock for that, half of the time and more. Here it rests now and then.
"""

import itertools
import threading
import time

from numba import config

if config.ENABLE_CUDASIM:
    from numba.cuda.simulator.kernel import BlockThread

    OFTEN = 8
    asked = itertools.count()

    def is_alive(thread: threading.Thread) -> bool:
        """Answer, every now and then after a moment that the others may use."""
        if next(asked) % OFTEN == 0:
            time.sleep(1e-6)
        return threading.Thread.is_alive(thread)

    BlockThread.is_alive = is_alive
