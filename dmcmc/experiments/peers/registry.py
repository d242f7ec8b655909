"""The registry of peers, by name."""

from dmcmc.experiments.peers import cp_sat, pydcop, toulbar2
from dmcmc.experiments.peers.contract import Peer

_PYDCOP = ("dsa", "mgm", "mgm2")
PEERS = {
    "toulbar2": Peer("hybrid best-first search (extra: toulbar2)", toulbar2.solve),
    "cp-sat": Peer("OR-tools' CP-SAT, one worker (extra: peers)", cp_sat.solve),
    **{f"pydcop-{name}": Peer(f"pyDCOP's {name.upper()} (extra: pydcop)", pydcop.solver_of(name)) for name in _PYDCOP},
}
