"""The local solver ``cp-sat``: one search by CP-SAT per row of an agent's table."""

from dmcmc.samplers.cp_sat.process import CpSatProcess, available
from dmcmc.samplers.toulbar2.solver import RowSearchSolver

SOLVER = RowSearchSolver(
    "cp-sat",
    "CP-SAT, one search per row; proves its table if time allows (extra: search)",
    CpSatProcess,
    available,
    "ortools; pip install 'dmcmc[search]'",
)
