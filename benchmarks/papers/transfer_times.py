"""Time transfers and the rest of ADPOP on a GPU apart (GpuBE, Fig. 11 d), on networks of five values.

    python -m benchmarks.papers.transfer_times [--quick] [--output FILE]

For z = 4, 6 and 8 and the three topologies of the paper, ``transfers`` are the seconds of all copies between host and
device and of allocations, each waited for; ``share`` is their part of the run. Waiting makes a run slightly longer, and
``run ms`` is the time with waiting. Kernels are compiled before. A GPU is needed.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dmcmc
from benchmarks.harness import Columns, Report, options

_PROBLEMS: dict[str, dict[str, Any]] = {
    "random-network": {"nodes": 20, "density": 0.3},
    "scale-free": {"nodes": 20},
    "grid": {"rows": 10},
}
_COPIES = ("host_to_device", "device_to_host", "device_to_device")
_TABLE = Columns(("problem", "<14"), ("z", ">2d"), ("run ms", ">9.2f"), ("transfers ms", ">12.2f"), ("share", ">6.1%"))


class TransferClock:
    """The seconds of all transfers and allocations so far."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timing(self, function: Callable[..., Any], wait: Callable[[], object]) -> Callable[..., Any]:
        """Return a function that waits for the device before and after a call and adds the time of the call."""

        def timed_call(*arguments: Any, **named: Any) -> Any:
            wait()
            begun = time.perf_counter()
            result = function(*arguments, **named)
            wait()
            self.seconds += time.perf_counter() - begun
            return result

        return timed_call


@contextmanager
def timed_transfers() -> Iterator[TransferClock]:
    """Time Numba's transfers and allocations while the context lasts."""
    from numba import cuda
    from numba.cuda.cudadrv import driver

    clock, before = TransferClock(), {name: getattr(driver, name) for name in _COPIES}
    context = cuda.current_context()
    allocate = context.memalloc
    try:
        for name, function in before.items():
            setattr(driver, name, clock.timing(function, cuda.synchronize))
        context.memalloc = clock.timing(allocate, cuda.synchronize)
        yield clock
    finally:
        for name, function in before.items():
            setattr(driver, name, function)
        context.memalloc = allocate


def main() -> None:
    """Print the table."""
    parser = options(__file__, __doc__ or "", device="cuda")
    parser.add_argument("--quick", action="store_true", help="only z = 4")
    given = parser.parse_args()
    report = Report(__file__, given)
    report(_TABLE.head)
    for family, sizes in _PROBLEMS.items():
        problem = dmcmc.generate(family, domain_size=5, tightness=0.5, **sizes)
        for z in (4,) if given.quick else (4, 6, 8):
            algorithm = {"name": "adpop", "parameters": {"z": z}}
            dmcmc.solve(problem, algorithm=algorithm, presolve="none", device=given.device)
            with timed_transfers() as clock:
                result = dmcmc.solve(problem, algorithm=algorithm, presolve="none", device=given.device)
            report(_TABLE.line(family, z, 1e3 * result.time, 1e3 * clock.seconds, clock.seconds / result.time))
    report.keep()


if __name__ == "__main__":
    main()
