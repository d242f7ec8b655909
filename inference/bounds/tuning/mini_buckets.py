"""Constants of mini-bucket bounds, of their combination with dual ascent, and of exact residual problems."""

from dmcmc.inference.execution.tuning import SECONDS_PER_BOUND_CELL
from dmcmc.inference.tuning import CELLS_PER_BUCKET, MAX_EXPANDED_ENTRIES, WORKSPACE_SHARE

# Division of the time between dual ascent and mini-buckets. Benchmark: benchmarks.bounds.providers.
LEADER_WEIGHT = 4.0  # share of the time of the method that gains fastest, relative to each other one
STEP_FRACTION = 0.25  # of the time so far is the length of a step of dual ascent, and of a bound's time its first part
ENTRIES_PER_SWEEP = 1 << 20  # mini-bucket entries per sweep of dual ascent, if the amount of work is fixed

# Mini-buckets of the potentials. Benchmark: benchmarks.elimination.minibuckets.
DUAL_SWEEPS = 6  # sweeps of the dual ascent that comes first, in the unit of sweeps per row
MAX_Z_CELLS = 4_000_000_000  # joined cells of the largest z that is tried
MAX_Z_BYTES = 8 * MAX_EXPANDED_ENTRIES  # tables of the largest z that is tried: 2 GiB
Z_SHARE = 2 * WORKSPACE_SHARE  # of the memory, for these tables
SECONDS_PER_BUCKET = CELLS_PER_BUCKET * SECONDS_PER_BOUND_CELL  # overhead of a mini-bucket, in addition to its cells
