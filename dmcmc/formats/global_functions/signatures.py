"""The parameters of global cost functions, in the order in which both ``.wcsp`` and ``.cfn`` files give them."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Field(NamedTuple):
    """A parameter.

    ``kind`` is ``word`` (one of ``of``, separated by ``|``), ``cost``, ``whole``, ``list`` (records; each letter of
    ``of`` is i for an integer or c for a cost), ``lists`` (such a list a variable) or ``each`` (an integer a variable).
    """

    name: str
    kind: str
    of: str = ""


_VAR = Field("metric", "word", "var")
_METRIC, _COST = Field("metric", "word", "hard|lin|quad"), Field("cost", "cost")
_COMPARATOR = Field("comparator", "word", "==|<|<=|>|>=|!=")
_BOUNDS = Field("bounds", "list", "iii")
_ARITHMETIC = (Field("constant", "whole"), Field("delta", "whole"))
_STATES = Field("nb_states", "whole")
_AMONG = (_VAR, _COST, Field("min", "whole"), Field("max", "whole"), Field("values", "list", "i"))
_RUNS = (Field("starts", "list", "i"), Field("ends", "list", "i"), Field("transitions", "list", "iii"))
_WEIGHTED = (Field("starts", "list", "ic"), Field("ends", "list", "ic"), Field("transitions", "list", "iiic"))

SIGNATURES: Mapping[str, tuple[Field, ...]] = {
    "salldiff": (Field("metric", "word", "var|dec|decbi"), _COST),
    "salldiffdp": (_VAR, _COST),
    "sgcc": (Field("metric", "word", "var|dec|wdec"), _COST, _BOUNDS),
    "sgccdp": (_VAR, _COST, _BOUNDS),
    "samong": _AMONG,
    "samongdp": _AMONG,
    "sregular": (_VAR, _COST, _STATES, *_RUNS),
    "sregulardp": (_VAR, _COST, _STATES, *_RUNS),
    "wregular": (_STATES, *_WEIGHTED),
    "walldiff": (_METRIC, _COST),
    "wgcc": (_METRIC, _COST, _BOUNDS),
    "wamong": (_METRIC, _COST, Field("values", "list", "i"), Field("min", "whole"), Field("max", "whole")),
    "wvaramong": (Field("metric", "word", "hard"), _COST, Field("values", "list", "i")),
    "wsum": (_METRIC, _COST, _COMPARATOR, Field("to", "whole")),
    "wvarsum": (Field("metric", "word", "hard"), _COST, _COMPARATOR),
    "clique": (Field("rhs", "whole"), Field("values", "lists", "i")),
    "knapsack": (Field("capacity", "whole"), Field("weights", "each")),
    "knapsackp": (Field("capacity", "whole"), Field("weightedvalues", "lists", "ii")),
    ">=": _ARITHMETIC,
    ">": _ARITHMETIC,
    "<=": _ARITHMETIC,
    "<": _ARITHMETIC,
    "=": _ARITHMETIC,
    "disj": (Field("x", "whole"), Field("y", "whole"), Field("penalty", "cost")),
}

ANY_SENSE = ("clique", "knapsack", "knapsackp")  # mean the same where utilities are maximised


def record(field: Field, earlier: Mapping[str, Any]) -> str:
    """Return the letters of a list's records; those of ``sgcc wdec`` have two weights."""
    return field.of + "cc" if field is _BOUNDS and earlier.get("metric") == "wdec" else field.of
