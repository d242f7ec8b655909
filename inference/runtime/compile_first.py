"""Whether runs wait for their kernels: the environment variable ``DMCMC_COMPILE`` with the value ``first``.

By default a run with a time limit begins with the kernels that are compiled, and small problems are interpreted.
Measurements and tests compare what methods find, which must not depend on that. With ``first`` each run compiles its
kernels before its clock starts.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

COMPILE_FIRST = {"DMCMC_COMPILE": "first"}  # as an environment for other processes


def compiles_first() -> bool:
    """Return whether runs wait for their kernels."""
    return all(os.environ.get(name) == value for name, value in COMPILE_FIRST.items())


@contextmanager
def compiling_first() -> Iterator[None]:
    """Let the runs of this process in the block wait for their kernels."""
    before = {name: os.environ.get(name) for name in COMPILE_FIRST}
    os.environ.update(COMPILE_FIRST)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
