"""A diary that can be met, for the hard meeting problems to be drawn around."""

import numpy as np
from numpy.typing import NDArray


def planted(
    rng: np.random.Generator,
    edges: NDArray[np.int64],
    gaps: NDArray[np.int32],
    available: NDArray[np.bool_],
    fixed: NDArray[np.int64],
    events: int,
) -> NDArray[np.int64]:
    """Return a slot for each event, such that joined events start in different slots, by a gap apart where possible.

    Greedy colouring, the events with most neighbours first, random among the good slots; if that fails, once more with
    the first good slot. If that fails too, some joined events share a slot.

    Parameters
    ----------
    edges : shape (m, 2)
        Pairs of events.
    gaps : shape (m,)
        How far apart each pair should start.
    available : shape (slots,)
        Where an event may start.
    fixed : shape (b,)
        Slots of the first b events, given.
    events
        How many there are.
    """
    gap = np.zeros((events, events), dtype=np.int64)
    gap[edges[:, 0], edges[:, 1]] = gap[edges[:, 1], edges[:, 0]] = gaps
    order = np.argsort(-(gap > 0).sum(axis=1), kind="stable")
    slots = np.flatnonzero(available)
    for spread in (True, False):
        chosen = np.full(events, -1, dtype=np.int64)
        chosen[: len(fixed)] = fixed
        met = True
        for event in order[order >= len(fixed)]:
            near = np.flatnonzero((gap[event] > 0) & (chosen >= 0))
            apart = np.abs(slots[:, None] - chosen[near])
            good = slots[(apart >= gap[event, near]).all(axis=1)] if spread else slots[:0]
            if not len(good):
                good = slots[(apart > 0).all(axis=1)]
            met &= len(good) > 0
            good = good if len(good) else slots
            chosen[event] = good[int(rng.integers(len(good))) if spread else 0]
        if met:
            break
    return chosen
