"""The parameters of global cost functions, in the order in which both ``.wcsp`` and ``.cfn`` files give them."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Field(NamedTuple):
    """A parameter.

    ``kind`` is ``word`` (one of ``of``, separated by ``|``), ``cost``, ``whole``, ``list`` (records; each letter of
    ``of`` is i for an integer, c for a cost or v for a variable), ``lists`` (such a list a variable), ``groups`` (any
    number of such lists), ``each`` (an integer a variable), ``variables`` (a list of them; in ``.wcsp`` files the
    lengths of all such lists stand before the first) or ``rules`` (records of a grammar; ``.wcsp`` files mix those of
    both kinds).
    """

    name: str
    kind: str
    of: str = ""


_VAR = Field("metric", "word", "var")
_METRIC, _COST = Field("metric", "word", "hard|lin|quad"), Field("cost", "cost")
_COMPARATOR = Field("comparator", "word", "==|<|<=|>|>=|!=")
_BOUNDS = Field("bounds", "list", "iii")
_DISTANCE = (Field("distance", "whole"), Field("values", "each"))
_LARGEST = (Field("defaultcost", "cost"), Field("tuples", "list", "vic"))
_ARITHMETIC = (Field("constant", "whole"), Field("delta", "whole"))
_STATES = Field("nb_states", "whole")
_AMONG = (_VAR, _COST, Field("min", "whole"), Field("max", "whole"), Field("values", "list", "i"))
_RUNS = (Field("starts", "list", "i"), Field("ends", "list", "i"), Field("transitions", "list", "iii"))
_GRAMMAR = (
    Field("metric", "word", "var|weight"),
    _COST,
    Field("nb_symbols", "whole"),
    Field("nb_values", "whole"),
    Field("start", "whole"),
    Field("terminals", "rules", "ii"),
    Field("non_terminals", "rules", "iii"),
)
_WEIGHTED = (Field("starts", "list", "ic"), Field("ends", "list", "ic"), Field("transitions", "list", "iiic"))

SIGNATURES: Mapping[str, tuple[Field, ...]] = {
    "salldiff": (Field("metric", "word", "var|dec|decbi"), _COST),
    "salldiffdp": (_VAR, _COST),
    "salldiffkp": (Field("metric", "word", "hard"), _COST),
    "sgcc": (Field("metric", "word", "var|dec|wdec"), _COST, _BOUNDS),
    "sgccdp": (_VAR, _COST, _BOUNDS),
    "samong": _AMONG,
    "samongdp": _AMONG,
    "ssame": (_COST, Field("vars1", "variables"), Field("vars2", "variables")),
    "sregular": (Field("metric", "word", "var|edit"), _COST, _STATES, *_RUNS),
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
    "woverlap": (_METRIC, _COST, _COMPARATOR, Field("to", "whole")),
    "wdiverse": _DISTANCE,
    "whdiverse": _DISTANCE,
    "wtdiverse": _DISTANCE,
    "wamong": (_METRIC, _COST, Field("values", "list", "i"), Field("min", "whole"), Field("max", "whole")),
    "wvaramong": (Field("metric", "word", "hard"), _COST, Field("values", "list", "i")),
    "wsum": (_METRIC, _COST, _COMPARATOR, Field("to", "whole")),
    "wvarsum": (Field("metric", "word", "hard"), _COST, _COMPARATOR),
    "clique": (Field("rhs", "whole"), Field("values", "lists", "i")),
    "knapsack": (Field("capacity", "whole"), Field("weights", "each")),
    # Weights as toulbar2's reader takes them, which is not as its documentation has them.
    "knapsackc": (
        Field("capacity", "whole"),
        Field("weightedvalues", "lists", "ii"),
        Field("conflicts", "groups", "vi"),
    ),
    "knapsackp": (Field("capacity", "whole"), Field("weightedvalues", "lists", "ii")),
    "knapsackv": (Field("capacity", "whole"), Field("weightedvalues", "list", "vii")),
    ">=": _ARITHMETIC,
    ">": _ARITHMETIC,
    "<=": _ARITHMETIC,
    "<": _ARITHMETIC,
    "=": _ARITHMETIC,
    "disj": (Field("x", "whole"), Field("y", "whole"), Field("penalty", "cost")),
    "sdisj": (
        Field("x", "whole"),
        Field("y", "whole"),
        Field("xmax", "whole"),
        Field("ymax", "whole"),
        Field("wx", "cost"),
        Field("wy", "cost"),
    ),
}

ANY_SENSE = (
    *("clique", "knapsack", "knapsackc", "knapsackp", "knapsackv", "salldiffkp"),
    *("MST", "wdiverse", "whdiverse", "wtdiverse"),
)
"""These only forbid: they mean the same where utilities are maximised."""


def record(field: Field, earlier: Mapping[str, Any]) -> str:
    """Return the letters of a list's records: those of ``sgcc wdec`` have two weights, of a weighted grammar one."""
    if field.kind == "rules":
        return field.of + "c" if earlier["metric"] == "weight" else field.of
    return field.of + "cc" if field is _BOUNDS and earlier.get("metric") == "wdec" else field.of


def costs_in(keyword: str, arguments: Mapping[str, Any]) -> list[int]:
    """Return all costs that a function's parameters name."""
    named: list[int] = []
    for field in SIGNATURES[keyword]:
        if field.kind == "cost":
            named.append(arguments[field.name])
        elif field.kind in ("list", "rules"):
            places = [i for i, letter in enumerate(record(field, arguments)) if letter == "c"]
            named += [entry[i] for entry in arguments[field.name] for i in places]
    return named
