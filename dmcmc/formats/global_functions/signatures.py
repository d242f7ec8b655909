"""Parameters of global cost functions, in the order in which ``.wcsp`` and ``.cfn`` files give them."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class ParameterSpec(NamedTuple):
    """A parameter of a global cost function.

    Attributes
    ----------
    name : str
        Name of the parameter.
    kind : str
        * ``word``: one of the words in ``layout``, which are separated by ``|``.
        * ``cost``, ``whole``: a cost, an integer.
        * ``list``: records; each letter of ``layout`` is i for an integer, c for a cost or v for a variable.
        * ``lists``: one such list per variable. ``groups``: any number of such lists.
        * ``each``: one integer per variable.
        * ``variables``: a list of variables; in ``.wcsp`` files the lengths of all such lists precede the first.
        * ``rules``: records of a grammar; ``.wcsp`` files mix terminal and non-terminal rules.
    layout : str
        See ``kind``.
    """

    name: str
    kind: str
    layout: str = ""


# Parameters that several functions share. Their names, from toulbar2, become the keys of ``arguments``.
_VAR = ParameterSpec("metric", "word", "var")
_METRIC = ParameterSpec("metric", "word", "hard|lin|quad")
_COST = ParameterSpec("cost", "cost")
_COMPARATOR = ParameterSpec("comparator", "word", "==|<|<=|>|>=|!=")
_BOUNDS = ParameterSpec("bounds", "list", "iii")
_DISTANCE = (ParameterSpec("distance", "whole"), ParameterSpec("values", "each"))
_LARGEST = (ParameterSpec("defaultcost", "cost"), ParameterSpec("tuples", "list", "vic"))
_ARITHMETIC = (ParameterSpec("constant", "whole"), ParameterSpec("delta", "whole"))
_STATES = ParameterSpec("nb_states", "whole")
_AMONG = (
    _VAR,
    _COST,
    ParameterSpec("min", "whole"),
    ParameterSpec("max", "whole"),
    ParameterSpec("values", "list", "i"),
)
_RUNS = (
    ParameterSpec("starts", "list", "i"),
    ParameterSpec("ends", "list", "i"),
    ParameterSpec("transitions", "list", "iii"),
)
_GRAMMAR = (
    ParameterSpec("metric", "word", "var|weight"),
    _COST,
    ParameterSpec("nb_symbols", "whole"),
    ParameterSpec("nb_values", "whole"),
    ParameterSpec("start", "whole"),
    ParameterSpec("terminals", "rules", "ii"),
    ParameterSpec("non_terminals", "rules", "iii"),
)
_WEIGHTED = (
    ParameterSpec("starts", "list", "ic"),
    ParameterSpec("ends", "list", "ic"),
    ParameterSpec("transitions", "list", "iiic"),
)

SIGNATURES: Mapping[str, tuple[ParameterSpec, ...]] = {
    "salldiff": (ParameterSpec("metric", "word", "var|dec|decbi"), _COST),
    "salldiffdp": (_VAR, _COST),
    "salldiffkp": (ParameterSpec("metric", "word", "hard"), _COST),
    "sgcc": (ParameterSpec("metric", "word", "var|dec|wdec"), _COST, _BOUNDS),
    "sgccdp": (_VAR, _COST, _BOUNDS),
    "samong": _AMONG,
    "samongdp": _AMONG,
    "ssame": (_COST, ParameterSpec("vars1", "variables"), ParameterSpec("vars2", "variables")),
    "sregular": (ParameterSpec("metric", "word", "var|edit"), _COST, _STATES, *_RUNS),
    "sregulardp": (_VAR, _COST, _STATES, *_RUNS),
    "wregular": (_STATES, *_WEIGHTED),
    "sgrammar": _GRAMMAR,
    "sgrammardp": _GRAMMAR,
    "max": _LARGEST,
    "smaxdp": _LARGEST,
    "MST": (),
    "walldiff": (_METRIC, _COST),
    "wgcc": (_METRIC, _COST, _BOUNDS),
    "wsame": (_METRIC, _COST),
    "wsamegcc": (_METRIC, _COST, _BOUNDS),
    "woverlap": (_METRIC, _COST, _COMPARATOR, ParameterSpec("to", "whole")),
    "wdiverse": _DISTANCE,
    "whdiverse": _DISTANCE,
    "wtdiverse": _DISTANCE,
    "wamong": (
        _METRIC,
        _COST,
        ParameterSpec("values", "list", "i"),
        ParameterSpec("min", "whole"),
        ParameterSpec("max", "whole"),
    ),
    "wvaramong": (ParameterSpec("metric", "word", "hard"), _COST, ParameterSpec("values", "list", "i")),
    "wsum": (_METRIC, _COST, _COMPARATOR, ParameterSpec("to", "whole")),
    "wvarsum": (ParameterSpec("metric", "word", "hard"), _COST, _COMPARATOR),
    "clique": (ParameterSpec("rhs", "whole"), ParameterSpec("values", "lists", "i")),
    "knapsack": (ParameterSpec("capacity", "whole"), ParameterSpec("weights", "each")),
    # Weights as toulbar2's reader takes them, which differs from its documentation.
    "knapsackc": (
        ParameterSpec("capacity", "whole"),
        ParameterSpec("weightedvalues", "lists", "ii"),
        ParameterSpec("conflicts", "groups", "vi"),
    ),
    "knapsackp": (ParameterSpec("capacity", "whole"), ParameterSpec("weightedvalues", "lists", "ii")),
    "knapsackv": (ParameterSpec("capacity", "whole"), ParameterSpec("weightedvalues", "list", "vii")),
    ">=": _ARITHMETIC,
    ">": _ARITHMETIC,
    "<=": _ARITHMETIC,
    "<": _ARITHMETIC,
    "=": _ARITHMETIC,
    "disj": (ParameterSpec("x", "whole"), ParameterSpec("y", "whole"), ParameterSpec("penalty", "cost")),
    "sdisj": (
        ParameterSpec("x", "whole"),
        ParameterSpec("y", "whole"),
        ParameterSpec("xmax", "whole"),
        ParameterSpec("ymax", "whole"),
        ParameterSpec("wx", "cost"),
        ParameterSpec("wy", "cost"),
    ),
}

ANY_SENSE = (
    *("clique", "knapsack", "knapsackc", "knapsackp", "knapsackv", "salldiffkp"),
    *("MST", "wdiverse", "whdiverse", "wtdiverse"),
)
"""Functions that only forbid, so that they have the same meaning if utilities are maximised."""


def record_layout(field: ParameterSpec, earlier: Mapping[str, Any]) -> str:
    """Return the letters of a list's records: i for an integer, c for a cost, v for a variable.

    They are ``field.layout``, with two costs added for the bounds of ``sgcc`` with the metric ``wdec``, and one cost
    for the rules of a weighted grammar.

    Parameters
    ----------
    field
        The parameter; its kind is ``list`` or ``rules``.
    earlier
        Parameters that precede it, by name; ``metric`` decides.
    """
    if field.kind == "rules":
        return field.layout + "c" if earlier["metric"] == "weight" else field.layout
    return field.layout + "cc" if field is _BOUNDS and earlier.get("metric") == "wdec" else field.layout


def costs_in(keyword: str, arguments: Mapping[str, Any]) -> list[int]:
    """Return all costs in the parameters of a function."""
    costs: list[int] = []
    for field in SIGNATURES[keyword]:
        if field.kind == "cost":
            costs.append(arguments[field.name])
        elif field.kind in ("list", "rules"):
            cost_positions = [i for i, letter in enumerate(record_layout(field, arguments)) if letter == "c"]
            costs += [entry[i] for entry in arguments[field.name] for i in cost_positions]
    return costs
