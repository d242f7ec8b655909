"""Numbers about all assignments of a problem: the partition function, how many are feasible."""

import math
import time
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from dmcmc.config import Config
from dmcmc.inference.backends import Backend
from dmcmc.inference.counting import count_solutions
from dmcmc.inference.partition_function import log_partition
from dmcmc.inference.problem import Problem
from dmcmc.inference.threads import cores
from dmcmc.provenance import provenance
from dmcmc.result import Number, Output

_LN_10 = math.log(10)


class Measure(Output, frozen=True, kw_only=True):
    """A number about all assignments.

    Attributes
    ----------
    task
        ``pr``: Z = Σ exp(utility) over all assignments; ``count``: how many break no hard constraint.
    status
        ``exact``; ``bound``: the number is no larger; ``infeasible``: it is 0, every assignment breaks a constraint.
    value
        The number: an exact integer, or a float; None where no float is large enough.
    ln, log10
        Its logarithms; None for those of 0.
    time
        Wall seconds after start-up.
    variables, width, cells
        Of the problem, and induced width and joined cells of the elimination.
    z
        Limit of the mini-buckets of a bound.
    """

    task: Literal["pr", "count"]
    status: Literal["exact", "bound", "infeasible"]
    value: Number | None
    ln: float | None
    log10: float | None
    time: float
    variables: int
    width: int
    cells: int
    z: int | None = None
    provenance: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """What the command line exits with: 3 when proven infeasible, else 0."""
        return 3 if self.status == "infeasible" else 0


def measure(problem: Problem, config: Config, task: Literal["pr", "count"]) -> Measure:
    """Return the partition function (costs c as exp(−c), utilities u as exp(u)) or the number of solutions.

    Parameters
    ----------
    problem
        Any; agents do not matter.
    config
        Memory and device; ``combine.method: mini-bucket`` bounds a partition function from above.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory.
    """
    start = time.perf_counter()
    memory, backend = config.budget.memory, Backend.of(config.device, cores())
    z: int | None = None
    value: Number | None
    if task == "count":
        counted = count_solutions(problem, memory, backend)
        value, width, cells = counted.count, counted.width, counted.cells
        ln = math.log(value) if value else -math.inf
    else:
        split, limit = config.combine.method == "mini-bucket", config.combine.z
        found = log_partition(problem, memory, backend, split, limit if isinstance(limit, int) else None)
        ln, z, width, cells = found.ln, found.z, found.width, found.cells
        value = exp_or_none(ln)
    some = ln > -math.inf
    return Measure(
        task=task,
        status="infeasible" if not some else "exact" if z is None else "bound",
        value=value if some else 0,
        ln=ln if some else None,
        log10=ln / _LN_10 if some else None,
        time=time.perf_counter() - start,
        variables=problem.n_variables,
        width=width,
        cells=cells,
        z=z,
        provenance=provenance(config, 1, backend.threads),
    )


def exp_or_none(ln: float) -> float | None:
    """Return e^ln; None where that is beyond a float64, or 0 for one although it is not.

    >>> exp_or_none(0.0), exp_or_none(1000.0), exp_or_none(-1000.0)
    (1.0, None, None)
    """
    if abs(ln) > 700:
        return None
    return math.exp(ln)
