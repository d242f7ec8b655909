"""Merge several plans into one plan, so that the buckets of all of them are run together."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from dmcmc.inference.elimination.eliminate import Elimination, eliminate
from dmcmc.inference.elimination.plan import BucketProgram, EliminationPlan, table_offsets
from dmcmc.inference.elimination.semirings import MAX_PLUS, Semiring
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memo import Memo, digest
from dmcmc.inference.runtime.types import Ints

_MAX_CACHED_TABLES = 1 << 14  # total tables of plans whose merged plan is cached
_CONTIGUOUS = (-1, -1)  # key of the contiguous plan in ``EliminationPlan.derived_plans``


class MergedPlan(NamedTuple):
    """A plan made of several plans.

    Attributes
    ----------
    plan : EliminationPlan
        The merged plan: inputs of the first plan, of the second, ...; buckets likewise.
    numbers : list of (tables,) int64
        The number in the merged plan of each table, for each plan.
    bucket_start : (plans + 1,) int64
        First bucket of each plan in the merged plan.
    entry_start : list of int
        Arena offset of each plan's tables in :meth:`contiguous_plan`, and the end of the last plan's.
    """

    plan: EliminationPlan
    numbers: list[Ints]
    bucket_start: Ints
    entry_start: list[int]

    def contiguous_plan(self, plans: Sequence[EliminationPlan]) -> EliminationPlan:
        """Return the merged plan with each plan's tables contiguous in the arena, in the layout of the plan itself.

        The result is cached.
        """
        found: EliminationPlan | None = self.plan.derived_plans.get(_CONTIGUOUS)
        if found is None:
            at = np.empty_like(self.plan.program.at)
            for numbers, start, plan in zip(self.numbers, self.entry_start[:-1], plans, strict=True):
                at[numbers] = start + plan.program.at
            found = EliminationPlan(self.plan.program._replace(at=at), self.plan.sizes, self.plan.remaining)
            self.plan.derived_plans[_CONTIGUOUS] = found
        return found

    def eliminate(
        self,
        flat: FlatTables,
        plans: Sequence[EliminationPlan],
        arithmetic: Arithmetic,
        semiring: Semiring = MAX_PLUS,
        stop: Deadline = NO_DEADLINE,
    ) -> list[Elimination]:
        """Run the plans together on one thread; the tables equal those of single runs, bit by bit.

        Starting a small elimination costs more than running it.

        Parameters
        ----------
        flat
            Encoded tables: those of the first plan, then those of the second, ...
        plans
            The single plans.
        arithmetic
            The arithmetic of the tables.
        semiring
            The semiring.
        stop
            The deadline.

        Raises
        ------
        OutOfTime
            If the deadline passes.
        """
        arena = eliminate(flat, self.contiguous_plan(plans), arithmetic, 1, semiring, stop).arena
        bounds = zip(self.entry_start[:-1], self.entry_start[1:], strict=True)
        return [
            Elimination(plan, arena[begin : max(end, begin + 1)], arithmetic, semiring=semiring)
            for plan, (begin, end) in zip(plans, bounds, strict=True)
        ]


_MERGED = Memo[MergedPlan](16)  # at most 16 merged plans


def mergeable(plans: Sequence[EliminationPlan]) -> bool:
    """Return whether the plans have the same domain array and no variable in common."""
    if not plans:
        return False
    domains = plans[0].program.domains
    used = np.zeros(domains.size, dtype=np.bool_)
    for program in (plan.program for plan in plans):
        if program.domains is not domains and not np.array_equal(program.domains, domains):
            return False
        if used[program.scope].any() or used[program.variable].any():
            return False
        used[program.scope] = True
        used[program.variable] = True
    return True


def merge_plans_cached(plans: Sequence[EliminationPlan]) -> MergedPlan | None:
    """Return the merged plan, cached for equal plans; None if the plans cannot be merged.

    Plans derived from the merged plan (``divide_work``) are cached with it.
    """
    if not plans or sum(plan.tables for plan in plans) > _MAX_CACHED_TABLES:
        return merge_plans(plans) if mergeable(plans) else None
    domains = plans[0].program.domains  # plans may hold copies of it
    if not all(plan.program.domains is domains or np.array_equal(plan.program.domains, domains) for plan in plans):
        return None
    key = tuple(plan.shape_key for plan in plans), digest(domains)
    found = _MERGED.find(key)
    if found is None and mergeable(plans):
        found = merge_plans(plans)
        _MERGED.put(key, found)
    return found


def merge_plans(plans: Sequence[EliminationPlan]) -> MergedPlan:
    """Merge plans; :func:`mergeable` must hold."""
    programs = [plan.program for plan in plans]
    n_inputs = [plan.tables - plan.buckets for plan in plans]
    input_at = np.cumsum([0, *n_inputs])
    bucket_start = np.cumsum([0, *(plan.buckets for plan in plans)])
    message_at = input_at[-1] + bucket_start
    numbers = [
        np.concatenate([np.arange(input_at[i], input_at[i + 1]), np.arange(message_at[i], message_at[i + 1])])
        for i in range(len(plans))
    ]

    def inputs_first(pieces: Sequence[Ints], edges: Sequence[int]) -> Ints:
        """Return the parts that belong to the inputs of all plans, then those that belong to their messages."""
        heads = [piece[:edge] for piece, edge in zip(pieces, edges, strict=True)]
        return np.concatenate(heads + [piece[edge:] for piece, edge in zip(pieces, edges, strict=True)])

    lengths = inputs_first([np.diff(p.scope_start) for p in programs], n_inputs)
    sizes = inputs_first([plan.sizes for plan in plans], n_inputs)
    edges = [int(p.scope_start[g]) for p, g in zip(programs, n_inputs, strict=True)]
    program = BucketProgram(
        domains=programs[0].domains,
        scope_start=np.concatenate([[0], np.cumsum(lengths)]),
        scope=inputs_first([p.scope for p in programs], edges),
        at=table_offsets(sizes),
        variable=np.concatenate([p.variable for p in programs]),
        input_start=np.cumsum(np.concatenate([[0], *(np.diff(p.input_start) for p in programs)])),
        inputs=np.concatenate([number[p.inputs] for number, p in zip(numbers, programs, strict=True)]),
        cells=np.concatenate([p.cells for p in programs]),
        row_axes=np.concatenate([p.row_axes for p in programs]),
    )
    remaining = [number[t] for number, plan in zip(numbers, plans, strict=True) for t in plan.remaining]
    plan = EliminationPlan(program, sizes, tuple(map(int, remaining)))
    return MergedPlan(plan, numbers, bucket_start, [0, *accumulate(plan.entries for plan in plans)])
