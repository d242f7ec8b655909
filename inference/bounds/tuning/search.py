"""Constants of the branch and bound over rows. Benchmark: benchmarks.bounds.branch_and_bound.

A node is a row, an assignment of an agent's boundary variables, with the values that each hidden variable may take.
"""

from dmcmc.inference.bounds.tuning.dual import MIN_ANNEALED_SWEEPS
from dmcmc.inference.tuning import (
    CELLS_PER_CHECK,
    MAX_CHECK_INTERVAL,
    MAX_WORKSPACE_BYTES,
    SHARE_PER_ITEM,
    WORKSPACE_SHARE,
)

NODE_SWEEPS = MIN_ANNEALED_SWEEPS  # sweeps of dual ascent at a node: the fewest that are smoothed
ROOT_SWEEPS = 3 * NODE_SWEEPS  # sweeps at a row; half as many at a node whose tables have been evicted
BATCH_SIZE = 64  # nodes that a batch branches on the CPU; constant: results do not depend on the number of threads

# A node's margin is its bound minus the threshold: the amount by which the bound has to fall to close the node. If the
# branching variable's values lie on average less than margin / 2^BRANCH_GAP_BITS below the best one, the first branch
# takes the best 1 / BRANCH_SHARE of them: removing the best value alone would hardly lower the bound of the second
# branch. Otherwise the first branch takes the best value only.
BRANCH_GAP_BITS = 4
BRANCH_SHARE = 6

GAIN_DECAY = 0.9  # weight of earlier batches in an agent's gain per node, which is an exponential mean
MIN_GAIN_SHARE = 0.25  # of the agents' mean gain per node: lower limit of an agent's weight in a batch

# Open nodes of an agent: 64 MiB, their share where a large workspace takes 256 MiB.
MAX_FRONTIER_BYTES = int(MAX_WORKSPACE_BYTES * SHARE_PER_ITEM / WORKSPACE_SHARE)
MAX_NODES_PER_BATCH = 512  # larger batches are no faster, and the time may run out between two batches
PREPARED_CELLS = 8 * CELLS_PER_CHECK  # joined cells of a preparation that precedes the bounds: about 0.2 seconds
TRIAL_SECONDS = 2 * MAX_CHECK_INTERVAL  # time after which two bounders of an agent are compared
MIN_SECONDS_FOR_TRIAL = 25 * TRIAL_SECONDS  # until the deadline; with less, dual ascent bounds the nodes

# Nodes on a GPU. Benchmark: benchmarks.bounds.branch_and_bound with --device cuda.
NODES_PER_BLOCK = 4  # nodes of a batch per concurrent block: keeps the host work between two launches small
MAX_ENTRIES_PER_BLOCK = 16 * NODES_PER_BLOCK  # an agent's buffer entries per block, at most: those of 16 batches
