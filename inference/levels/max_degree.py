"""Bound the degrees of violation of global constraints from above."""

from dmcmc.inference.constraints.global_constraint import GlobalConstraint


def max_degree(constraint: GlobalConstraint) -> int:
    """Return an upper bound on the degree of violation, by the durations of pairs where these are known.

    Parameters
    ----------
    constraint : GlobalConstraint
        A constraint whose degree is a function of loads of cells, a precedence or an element constraint.
    """
    given = constraint.parameters()
    durations = sorted(given.get("durations", ()), reverse=True)
    pairs = len(durations) * (len(durations) - 1) // 2
    if constraint.kind == "no_overlap":
        return sum(i * int(duration) for i, duration in enumerate(durations))
    if constraint.kind in ("adjacency", "place_changes"):
        return pairs
    if constraint.kind == "precedence":
        first, second = given["numbers"]
        return max(0, int(first.max()) + int(given["distance"]) - int(second.min()))
    loads = constraint.cell_loads()
    if loads is None:
        return 1  # element
    return loads.largest_degree
