"""Solve a business-to-business schedule by MaxSAT (``python-sat``), for comparison.

The encoding is that of Bofill et al. (JAIR 74, 2022): a literal for each meeting and slot, one for each participant and
slot that is used, and a soft clause for each possible break, with their implied constraints. RC2 is a core-guided
solver, so that it finds nothing before it proves the optimum.
"""

import time
from itertools import combinations, count
from typing import Any

from dmcmc.generators.business_meetings import MAX_DIFFERENCE, BusinessSchedule


def formula(schedule: BusinessSchedule) -> tuple[Any, list[dict[int, int]]]:
    """Return the weighted formula, and for each meeting the literal of each possible slot.

    Raises
    ------
    ImportError
        If ``python-sat`` is not installed.
    """
    from pysat.card import CardEnc, EncType
    from pysat.formula import WCNF, IDPool

    pool, wcnf, number = IDPool(), WCNF(), count()

    def new() -> int:
        return int(pool.id(("v", next(number))))

    def limited(literals: list[int], low: int, high: int) -> None:
        """Add bounds on the number of true literals."""
        if high < len(literals):
            encoded = CardEnc.atmost(literals, high, vpool=pool, encoding=EncType.seqcounter)
            wcnf.extend(encoded.clauses)
        if low > 0:
            encoded = CardEnc.atleast(literals, low, vpool=pool, encoding=EncType.seqcounter)
            wcnf.extend(encoded.clauses)

    held = [{slot: new() for slot in slots} for slots in schedule.allowed]
    for literals in held:
        wcnf.append(list(literals.values()))
        wcnf.extend([[-a, -b] for a, b in combinations(literals.values(), 2)])
    used_at: list[list[int]] = [[] for _ in range(schedule.slots)]
    for p in range(schedule.participants):
        mine = [literals for literals, pair in zip(held, schedule.meetings, strict=True) if p in pair]
        if mine:
            used = _participant(wcnf, new, limited, mine, schedule.slots)
            for slot, literal in enumerate(used):
                used_at[slot].append(literal)
    for slot in range(schedule.slots):
        there = [literals[slot] for literals in held if slot in literals]
        limited(there, 0, schedule.tables)
        limited(used_at[slot], 0, 2 * schedule.tables)  # implied
    for first, second in schedule.before:
        for slot, literal in held[second].items():
            wcnf.append([-literal, *(x for earlier, x in held[first].items() if earlier < slot)])
    return wcnf, held


def _participant(wcnf: Any, new: Any, limited: Any, mine: list[dict[int, int]], slots: int) -> list[int]:
    """Add the clauses of a participant; return the literals of the slots that are used."""
    used, before = [new() for _ in range(slots)], [new() for _ in range(slots)]
    ends: list[int] = []
    for slot in range(slots):
        there = [literals[slot] for literals in mine if slot in literals]
        wcnf.extend([[-a, -b] for a, b in combinations(there, 2)])
        wcnf.append([-used[slot], *there])
        wcnf.extend([[-literal, used[slot]] for literal in there])
        wcnf.append([-used[slot], before[slot]])
        if slot:
            wcnf.append([-before[slot - 1], before[slot]])
            wcnf.append([-before[slot], before[slot - 1], used[slot]])
            end = new()
            wcnf.append([-before[slot - 1], used[slot - 1], -used[slot], end])
            wcnf.append([-end], weight=1)
            ends.append(end)
        else:
            wcnf.append([-before[slot], used[slot]])
    limited(used, len(mine), len(mine))  # implied
    limited(ends, 0, MAX_DIFFERENCE)
    return used


def solve(schedule: BusinessSchedule) -> tuple[int | None, list[int] | None, float]:
    """Return the optimum and its schedule, None if there is no schedule, and the seconds that it took."""
    from pysat.examples.rc2 import RC2

    start = time.perf_counter()
    wcnf, held = formula(schedule)
    with RC2(wcnf, solver="g4", adapt=True, exhaust=True, minz=True) as solver:
        model = solver.compute()
        if model is None:
            return None, None, time.perf_counter() - start
        true = {literal for literal in model if literal > 0}
        slots = [next(slot for slot, x in literals.items() if x in true) for literals in held]
        return int(solver.cost), slots, time.perf_counter() - start
