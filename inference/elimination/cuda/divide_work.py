"""Divide an elimination between CPU and GPU: which bucket runs where, and where each table lies.

The buckets form three groups A, G and C; what each bucket computes does not change. A runs on the CPU and needs no
result of the GPU, G runs on the GPU, and C runs on the CPU afterwards. All tables share one address space::

    messages of C | messages of A | inputs | messages of A for G | messages of G for C | other messages of G
    |------------------------------ host ------------------------------------------|
                                    |------------------------ device ----------------------------------|

One copy therefore uploads everything that the GPU needs, and one copy downloads everything that the CPU needs.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmcmc.inference.elimination.cuda.bucket_group_kernels import group_buckets
from dmcmc.inference.elimination.plan import BucketProgram, EliminationPlan
from dmcmc.inference.model.cuda.device_table import NEVER_RESIDENT
from dmcmc.inference.runtime.types import Ints


@dataclass(frozen=True)
class HybridPlan:
    """A plan with its buckets in the order A, G, C, and its address space.

    Attributes
    ----------
    plan : EliminationPlan
        The reordered plan; ``program.at`` holds offsets in the common address space.
    first, last : int
        The buckets of G are ``first`` to ``last`` − 1; none if equal.
    renumbered : (tables,) int64
        The new number of each table of the original plan.
    device_begin, device_end : int
        The part of the address space that the device holds, in entries.
    upload_end, download_end : int
        ``device_begin:upload_end`` is uploaded before G runs, ``upload_end:download_end`` is downloaded afterwards.
    launch_cache : dict
        Launches and descriptors computed so far, by what they depend on.
    """

    plan: EliminationPlan
    first: int
    last: int
    renumbered: Ints
    device_begin: int
    upload_end: int
    download_end: int
    device_end: int
    launch_cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def host_entries(self) -> int:
        """Number of entries of the address space that the host holds."""
        return self.download_end

    @property
    def device_entries(self) -> int:
        """Number of entries that the device holds."""
        return self.device_end - self.device_begin

    @property
    def device_inputs(self) -> list[int]:
        """The input tables that only the device reads."""
        p, given = self.plan.program, self.plan.tables - self.plan.buckets
        device_inputs = p.inputs[p.input_start[self.first] : p.input_start[self.last]]
        found: list[int] = device_inputs[device_inputs < given].tolist()
        return found


def divide_work(plan: EliminationPlan, threshold: int, min_resident: int = NEVER_RESIDENT) -> HybridPlan:
    """Assign buckets to CPU or GPU; the result is cached in the plan.

    Buckets of at least ``threshold`` joined cells, and the buckets between two of them, go to the GPU.

    Parameters
    ----------
    plan
        The plan to divide.
    threshold
        Joined cells (entries of a bucket's joined table) from which a bucket goes to the GPU.
    min_resident
        Number of entries from which a remaining table, one that no bucket consumes, is left on the device;
        ``NEVER_RESIDENT`` exceeds the size of every table.
    """
    found: HybridPlan | None = plan.derived_plans.get((threshold, min_resident))
    if found is None:
        plan.derived_plans[threshold, min_resident] = found = _divide(plan, threshold, min_resident)
    return found


def _divide(plan: EliminationPlan, threshold: int, min_resident: int) -> HybridPlan:
    """Compute the division for :func:`divide_work`."""
    program = plan.program
    given = plan.tables - plan.buckets
    group, consumer = group_buckets(
        program.variable, program.input_start, program.inputs, program.cells, given, threshold
    )
    bucket_order = np.argsort(group, kind="stable")
    first, last = int((group == 0).sum()), int((group <= 1).sum())
    new_bucket = np.empty_like(bucket_order)
    new_bucket[bucket_order] = np.arange(bucket_order.size)
    renumbered = np.concatenate([np.arange(given), given + new_bucket]).astype(np.int64)
    # Remaining tables count as consumed by the CPU (2), since the host reads them; large ones stay on the device (3).
    remaining_group = np.where(plan.sizes[given:] >= min_resident, 3, 2)
    consumer_group = np.where(consumer >= 0, group[consumer], remaining_group)
    # The section of the address space of each table of the original plan, numbered 0 to 5 in the order of the diagram.
    section = np.empty(plan.tables, dtype=np.int64)
    section[:given] = 2
    section[given:] = np.select(
        [group == 2, (group == 0) & (consumer_group != 1), group == 0, consumer_group == 2], [0, 1, 3, 4], 5
    )
    order = np.argsort(section, kind="stable")
    ends = np.cumsum(plan.sizes[order])
    at = np.empty(plan.tables, dtype=np.int64)
    at[order] = ends - plan.sizes[order]
    section_end = [int(plan.sizes[section <= s].sum()) for s in range(6)]
    tables = np.concatenate([np.arange(given), given + bucket_order]).astype(np.int64)  # new number -> old
    input_start, input_index = _gather(program.input_start, bucket_order)
    scope_start, scope_index = _gather(program.scope_start, tables)
    reordered = BucketProgram(
        domains=program.domains,
        scope_start=scope_start,
        scope=program.scope[scope_index],
        at=at[tables],
        variable=program.variable[bucket_order],
        input_start=input_start,
        inputs=renumbered[program.inputs[input_index]],
        cells=program.cells[bucket_order],
        row_axes=program.row_axes[bucket_order],
    )
    remaining = tuple(renumbered[list(plan.remaining)].tolist())
    return HybridPlan(
        EliminationPlan(reordered, plan.sizes[tables], remaining),
        first,
        last,
        renumbered,
        section_end[1],
        section_end[3],
        section_end[4],
        section_end[5],
    )


def _gather(start: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """Select pieces of a concatenated array.

    Parameters
    ----------
    start : (pieces + 1,) int64
        Start of each piece.
    chosen : (chosen,) int64
        The pieces to select, in order.

    Returns
    -------
    begin : (chosen + 1,) int64
        Starts of the chosen pieces when concatenated.
    index : (elements,) int64
        Source index of each of their elements.
    """
    lengths = np.diff(start)[chosen]
    begin = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return begin, np.repeat(start[:-1][chosen] - begin[:-1], lengths) + np.arange(begin[-1])
