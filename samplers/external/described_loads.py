"""Facts that follow from several descriptions of loads together, for engines that state them as implied constraints."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


def codes_by_scope(constraints: Iterable[dict[str, Any]]) -> dict[frozenset[int], dict[int, list[int]]]:
    """Return, for the scope of each hard all-different constraint, the codes of the values by variable."""
    return {
        frozenset(given["scope"]): dict(zip(given["scope"], given["codes"], strict=True))
        for given in constraints
        if "codes" in given and given["kind"] == "loads" and given["cost"] is None
    }


def never_shared(codes: Mapping[frozenset[int], dict[int, list[int]]], given: dict[str, Any]) -> bool:
    """Return whether an all-different constraint keeps items out of each other's cells, and all are somewhere.

    Parameters
    ----------
    codes : mapping
        The result of :func:`codes_by_scope`.
    given : dict
        The description of loads.
    """
    own = codes.get(frozenset(given["scope"]))
    if own is None:
        return False
    pairs = set[tuple[int, int]]()
    for item in given["items"]:
        if len(item["positions"]) != 1 or min(item["first"]) < 0:
            return False
        if any(end - first != 1 for first, end in zip(item["first"], item["end"], strict=True)):
            return False
        pairs.update(zip(item["first"], own[given["scope"][item["positions"][0]]], strict=True))
    return len({cell for cell, _ in pairs}) == len(pairs)


def implied_limits(
    groups: Iterable[frozenset[int]], limits: Iterable[tuple[frozenset[int], int]]
) -> list[tuple[list[frozenset[int]], int]]:
    """Return lists of groups of literals with the largest number of them that have a true literal.

    If at most k literals of a set are true, and each is in at most c groups, at most c · k groups have a true one.
    For meetings at k tables, which have two participants each, at most 2 k participants are busy (Bofill et al.).

    Parameters
    ----------
    groups : iterable of frozenset of int
        Groups of literals.
    limits : iterable of (frozenset of int, int)
        Sets of literals, with the largest number of them that may be true.
    """
    known, found = list(groups), []
    for literals, limit in limits:
        inside = [group for group in known if group <= literals]
        counts = Counter(literal for group in inside for literal in group)
        most = max(counts.values(), default=0) * limit
        if most < len(inside):
            found.append((inside, most))
    return found
