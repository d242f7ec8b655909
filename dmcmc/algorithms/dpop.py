"""DPOP and ADPOP with one variable an agent (Petcu, Faltings: IJCAI 2005, CP 2005): a run of ours, divided that way."""

from collections.abc import Mapping
from typing import Any

from dmcmc.algorithms.contract import Parameter, Rewriting, Values
from dmcmc.algorithms.tree import apart


def _exact(given: Values) -> Mapping[str, Mapping[str, Any]]:
    return {"local": {"method": "exact"}, "combine": {"method": "exact"}}


def _bounded(given: Values) -> Mapping[str, Mapping[str, Any]]:
    return {"local": {"method": "exact"}, "combine": {"method": "mini-bucket", "z": given["z"], "partition": "scope"}}


DPOP = Rewriting("dpop", "DPOP with one variable an agent: exact, tables as large as the tree is wide", apart, _exact)
ADPOP = Rewriting(
    "adpop",
    "ADPOP with one variable an agent: messages of at most z variables, a proven bound",
    apart,
    _bounded,
    {"z": Parameter(2, 1, 1000, text="variables of a message at most")},
)
