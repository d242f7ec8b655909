"""The peers by name."""

from dmcmc.experiments.peers import cp_sat, toulbar2
from dmcmc.experiments.peers.contract import Peer

PEERS = {
    "toulbar2": Peer("hybrid best-first search (extra: search)", toulbar2.solve),
    "cp-sat": Peer("OR-tools' CP-SAT, one worker (extra: peers)", cp_sat.solve),
}
