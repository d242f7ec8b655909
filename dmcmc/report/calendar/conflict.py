"""Show why a calendar is impossible: rules that cannot hold together, and what relaxing one of them brings."""

from dmcmc.results.calendar_result import CalendarConflict
from dmcmc.results.conflict import RelaxedConstraint


def lines_of_conflict(conflict: CalendarConflict) -> list[str]:
    """Return a conflict as lines of text for the terminal."""
    lines = [conflict.summary]
    if conflict.constraints:
        lines += ["", heading_of_rules(conflict), *(f" {rule}" for rule in conflict.constraints)]
    if conflict.relaxations:
        lines += ["", "what would help, each alone:"]
        lines += [f" without '{x.constraint}': {effect_of(x)}" for x in conflict.relaxations]
    return lines


def heading_of_rules(conflict: CalendarConflict) -> str:
    """Return the heading of the rules of a conflict."""
    smaller = (
        "without any one of them the meetings named above fit" if conflict.minimal else "perhaps fewer of them, too"
    )
    return f"these rules cannot hold together ({smaller}):"


def effect_of(relaxation: RelaxedConstraint) -> str:
    """Return in words what relaxing a rule brings."""
    if relaxation.objective is not None:
        best = "" if relaxation.status == "optimal" else " or more"
        return f"possible, with a total score of {relaxation.objective}{best}"
    return "not enough: other meetings still do not fit" if relaxation.status == "infeasible" else "not known in time"
