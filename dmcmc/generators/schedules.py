"""Build a feasible diary: a slot for each event of one member, around which a hard meeting problem is generated.

Slots are numbered from 0; the gap of two joined events is the number of slots by which their starts must differ.
"""

import numpy as np
from numpy.typing import NDArray


def planted_schedule(
    rng: np.random.Generator,
    edges: NDArray[np.int64],
    gaps: NDArray[np.int32],
    available: NDArray[np.bool_],
    fixed: NDArray[np.int64],
    events: int,
) -> NDArray[np.int64]:
    """Return a slot for each event such that joined events start in different slots, if possible a full gap apart.

    Events with the most neighbours are coloured first (greedy colouring), each with a random valid slot. If that fails,
    a second attempt ignores the gaps and takes the first slot that differs from the neighbours'. If that fails too,
    some joined events share a slot.

    Parameters
    ----------
    rng
        Source of randomness.
    edges : (m, 2) int64
        Pairs of joined events.
    gaps : (m,) int32
        Number of slots by which the starts of each pair should differ.
    available : (slots,) bool
        Slots in which an event may start.
    fixed : (b,) int64
        Given slots of the first b events.
    events : int
        Number of events.

    Returns
    -------
    (events,) int64
        Slot of each event.
    """
    gap = np.zeros((events, events), dtype=np.int64)
    gap[edges[:, 0], edges[:, 1]] = gap[edges[:, 1], edges[:, 0]] = gaps
    order = np.argsort(-(gap > 0).sum(axis=1), kind="stable")
    slots = np.flatnonzero(available)
    for use_gaps in (True, False):
        slot_of = np.full(events, -1, dtype=np.int64)
        slot_of[: len(fixed)] = fixed
        is_feasible = True
        for event in order[order >= len(fixed)]:
            neighbours = np.flatnonzero((gap[event] > 0) & (slot_of >= 0))
            distances = np.abs(slots[:, None] - slot_of[neighbours])
            valid = slots[(distances >= gap[event, neighbours]).all(axis=1)] if use_gaps else slots[:0]
            if not len(valid):
                valid = slots[(distances > 0).all(axis=1)]
            is_feasible &= len(valid) > 0
            valid = valid if len(valid) else slots
            slot_of[event] = valid[int(rng.integers(len(valid))) if use_gaps else 0]
        if is_feasible:
            break
    return slot_of
