"""Share an elimination out between CPU and GPU: which bucket runs where, and where each table lies.

The buckets are put in three groups, A, G, C, without changing what any of them computes: A runs on the CPU and needs
nothing from the GPU, G runs on the GPU, C runs on the CPU afterwards. All tables have one address space::

    messages of C | messages of A | inputs | messages of A for G | messages of G for C | other messages of G
    |------------------------------ host ------------------------------------------|
                                    |------------------------ device ----------------------------------|

so that one copy takes the GPU what it needs, and one brings back what the CPU needs.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmcmc.inference.elimination.cuda.bucket_group_kernels import group_buckets
from dmcmc.inference.elimination.plan import Plan, Program
from dmcmc.inference.model.cuda.device_table import NEVER
from dmcmc.inference.runtime.types import Ints


@dataclass(frozen=True)
class Hybrid:
    """A plan whose buckets are ordered A, G, C, and its address space.

    Attributes
    ----------
    plan : Plan
        Reordered; ``program.at`` are places in the common address space.
    first, last : int
        The buckets of G are ``first`` to ``last`` - 1; none if equal.
    number : (tables,) int64
        What the tables of the plan as it was are called now.
    device_begin, device_end : int
        The part of the address space that the device holds.
    upload_end, download_end : int
        ``device_begin:upload_end`` goes to the device before G, ``upload_end:download_end`` comes back after it.
    described : dict
        What has been worked out for launches.
    """

    plan: Plan
    first: int
    last: int
    number: Ints
    device_begin: int
    upload_end: int
    download_end: int
    device_end: int
    described: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def host_entries(self) -> int:
        """Entries of the address space that the host holds."""
        return self.download_end

    @property
    def device_entries(self) -> int:
        """Entries that the device holds."""
        return self.device_end - self.device_begin

    @property
    def taken(self) -> list[int]:
        """The given tables that the device takes, and nobody else."""
        p, given = self.plan.program, self.plan.tables - self.plan.buckets
        taken = p.inputs[p.input_start[self.first] : p.input_start[self.last]]
        found: list[int] = taken[taken < given].tolist()
        return found


def divide_work(plan: Plan, threshold: int, stays: int = NEVER) -> Hybrid:
    """Give buckets of at least ``threshold`` joined cells, and what lies between them, to the GPU; once for a plan.

    Parameters
    ----------
    stays
        Entries from which a table that is left over stays there.
    """
    found: Hybrid | None = plan.divided.get((threshold, stays))
    if found is None:
        plan.divided[threshold, stays] = found = _divide(plan, threshold, stays)
    return found


def _divide(plan: Plan, threshold: int, stays: int) -> Hybrid:
    program = plan.program
    given = plan.tables - plan.buckets
    group, taker = group_buckets(program.variable, program.input_start, program.inputs, program.cells, given, threshold)
    moved = np.argsort(group, kind="stable")
    first, last = int((group == 0).sum()), int((group <= 1).sum())
    place_of = np.empty_like(moved)
    place_of[moved] = np.arange(moved.size)
    renumbered = np.concatenate([np.arange(given), given + place_of]).astype(np.int64)
    left = np.where(plan.sizes[given:] >= stays, 3, 2)  # the host reads what is left over, unless it is large
    taker_group = np.where(taker >= 0, group[taker], left)
    # The order of the address space, by table of the old plan.
    section = np.empty(plan.tables, dtype=np.int64)
    section[:given] = 2
    section[given:] = np.select(
        [group == 2, (group == 0) & (taker_group != 1), group == 0, taker_group == 2], [0, 1, 3, 4], 5
    )
    order = np.argsort(section, kind="stable")
    ends = np.cumsum(plan.sizes[order])
    at = np.empty(plan.tables, dtype=np.int64)
    at[order] = ends - plan.sizes[order]
    edge = [int(plan.sizes[section <= s].sum()) for s in range(6)]
    tables = np.concatenate([np.arange(given), given + moved]).astype(np.int64)  # new number -> old
    input_start, taken = _gather(program.input_start, moved)
    scope_start, walk = _gather(program.scope_start, tables)
    reordered = Program(
        domains=program.domains,
        scope_start=scope_start,
        scope=program.scope[walk],
        at=at[tables],
        variable=program.variable[moved],
        input_start=input_start,
        inputs=renumbered[program.inputs[taken]],
        cells=program.cells[moved],
        low=program.low[moved],
    )
    remaining = tuple(renumbered[list(plan.remaining)].tolist())
    return Hybrid(
        Plan(reordered, plan.sizes[tables], remaining), first, last, renumbered, edge[1], edge[3], edge[4], edge[5]
    )


def _gather(start: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """Return where chosen pieces start when they are put one after another, and the places of what is in them."""
    lengths = np.diff(start)[chosen]
    begin = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return begin, np.repeat(start[:-1][chosen] - begin[:-1], lengths) + np.arange(begin[-1])
