"""DPOP and ADPOP with one variable per agent, as dmcmc runs on the problem divided in that way.

Sources: Petcu, Faltings: DPOP, IJCAI 2005; ADPOP (DPOP with mini-buckets), CP 2005. An algorithm here only gives the
settings and the division; ``dmcmc.anytime.solve`` does the work.
"""

from collections.abc import Mapping
from typing import Any

from dmcmc.algorithms.contract import Parameter, Rewriting, Values
from dmcmc.algorithms.tree import one_agent_per_variable


def _dpop_sections(given: Values) -> Mapping[str, Mapping[str, Any]]:
    """Return the settings of DPOP: exact tables and exact combination."""
    return {"local": {"method": "exact"}, "combine": {"method": "exact"}}


def _adpop_sections(given: Values) -> Mapping[str, Mapping[str, Any]]:
    """Return the settings of ADPOP: messages of at most ``z`` variables, split by mini-buckets."""
    return {"local": {"method": "exact"}, "combine": {"method": "mini-bucket", "z": given["z"], "partition": "scope"}}


DPOP = Rewriting(
    "dpop",
    "DPOP with one variable per agent: exact, tables as large as the tree is wide",
    one_agent_per_variable,
    _dpop_sections,
)
ADPOP = Rewriting(
    "adpop",
    "ADPOP with one variable per agent: messages of at most z variables, a proven bound",
    one_agent_per_variable,
    _adpop_sections,
    {"z": Parameter(2, 1, 1000, text="largest number of variables of a message")},
)
