"""Several plans as one: their buckets side by side, so that whatever runs it sees all of them at once."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from dmcmc.inference.elimination.plan import Plan, Program, places
from dmcmc.inference.runtime.memo import Memo, digest
from dmcmc.inference.runtime.types import Ints

_MOST_TABLES = 1 << 14  # of plans that are kept
_IN_PIECES = (-1, -1)  # among the ways to divide a plan


class Merged(NamedTuple):
    """A plan made of several.

    Attributes
    ----------
    plan : Plan
        Inputs are those of the first plan, then those of the second, ...; so are buckets.
    numbers : list of (tables,) int64
        What each plan's tables are called in it.
    bucket_start : (plans + 1,) int64
        Where each plan's buckets start.
    entry_start : list of int
        Where each plan's tables start in the arena of :meth:`in_pieces`, and where the last one's end.
    """

    plan: Plan
    numbers: list[Ints]
    bucket_start: Ints
    entry_start: list[int]

    def in_pieces(self, plans: Sequence[Plan]) -> Plan:
        """Return the plan with the tables of each one of ``plans`` in one piece of the arena, as they lie on their own.

        It is worked out once.
        """
        found: Plan | None = self.plan.divided.get(_IN_PIECES)
        if found is None:
            at = np.empty_like(self.plan.program.at)
            for numbers, start, plan in zip(self.numbers, self.entry_start[:-1], plans, strict=True):
                at[numbers] = start + plan.program.at
            found = Plan(self.plan.program._replace(at=at), self.plan.sizes, self.plan.remaining)
            self.plan.divided[_IN_PIECES] = found
        return found


_MERGED = Memo[Merged](16)


def mergeable(plans: Sequence[Plan]) -> bool:
    """Return whether plans number their variables alike, and no two have one in common."""
    if not plans:
        return False
    domains = plans[0].program.domains
    seen = np.zeros(domains.size, dtype=np.bool_)
    for program in (plan.program for plan in plans):
        if program.domains is not domains and not np.array_equal(program.domains, domains):
            return False
        if seen[program.scope].any() or seen[program.variable].any():
            return False
        seen[program.scope] = True
        seen[program.variable] = True
    return True


def merged_once(plans: Sequence[Plan]) -> Merged | None:
    """Return plans put side by side, those of an earlier call where that was given equal ones; None if they cannot be.

    What is worked out for the plan that they make (:func:`.divide_work`) is kept with it.
    """
    if not plans or sum(plan.tables for plan in plans) > _MOST_TABLES:
        return merge_plans(plans) if mergeable(plans) else None
    domains = plans[0].program.domains  # of which plans may have copies
    if not all(plan.program.domains is domains or np.array_equal(plan.program.domains, domains) for plan in plans):
        return None
    key = tuple(plan.shape_key for plan in plans), digest(domains)
    found = _MERGED.find(key)
    if found is None and mergeable(plans):
        found = merge_plans(plans)
        _MERGED.put(key, found)
    return found


def merge_plans(plans: Sequence[Plan]) -> Merged:
    """Put plans side by side; they have to be mergeable."""
    programs = [plan.program for plan in plans]
    given = [plan.tables - plan.buckets for plan in plans]
    input_at = np.cumsum([0, *given])
    bucket_start = np.cumsum([0, *(plan.buckets for plan in plans)])
    message_at = input_at[-1] + bucket_start
    numbers = [
        np.concatenate([np.arange(input_at[i], input_at[i + 1]), np.arange(message_at[i], message_at[i + 1])])
        for i in range(len(plans))
    ]

    def inputs_first(pieces: Sequence[Ints], edges: Sequence[int]) -> Ints:
        """Return what belongs to the inputs of all plans, then what belongs to their messages."""
        heads = [piece[:edge] for piece, edge in zip(pieces, edges, strict=True)]
        return np.concatenate(heads + [piece[edge:] for piece, edge in zip(pieces, edges, strict=True)])

    lengths = inputs_first([np.diff(p.scope_start) for p in programs], given)
    sizes = inputs_first([plan.sizes for plan in plans], given)
    edges = [int(p.scope_start[g]) for p, g in zip(programs, given, strict=True)]
    program = Program(
        domains=programs[0].domains,
        scope_start=np.concatenate([[0], np.cumsum(lengths)]),
        scope=inputs_first([p.scope for p in programs], edges),
        at=places(sizes),
        variable=np.concatenate([p.variable for p in programs]),
        input_start=np.cumsum(np.concatenate([[0], *(np.diff(p.input_start) for p in programs)])),
        inputs=np.concatenate([number[p.inputs] for number, p in zip(numbers, programs, strict=True)]),
        cells=np.concatenate([p.cells for p in programs]),
        low=np.concatenate([p.low for p in programs]),
    )
    remaining = [number[t] for number, plan in zip(numbers, plans, strict=True) for t in plan.remaining]
    plan = Plan(program, sizes, tuple(map(int, remaining)))
    return Merged(plan, numbers, bucket_start, [0, *accumulate(plan.entries for plan in plans)])
