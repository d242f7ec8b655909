"""Constants of the branch and bound over rows. Benchmark: benchmarks.bounds.branch_and_bound.

A node is a row, an assignment of an agent's boundary variables, with the values that each hidden variable may take.
"""

ROOT_SWEEPS = 24  # sweeps of dual ascent at a row
RESTORED_SWEEPS = 12  # sweeps at a node whose tables have been evicted
NODE_SWEEPS = 8  # sweeps at any other node
BATCH_SIZE = 64  # nodes that a batch branches on the CPU; constant: results do not depend on the number of threads

# A node's margin is its bound minus the threshold: the amount by which the bound has to fall to close the node. If the
# branching variable's values lie on average less than margin / 2^BRANCH_GAP_BITS below the best one, the first branch
# takes the best 1 / BRANCH_SHARE of them: removing the best value alone would hardly lower the bound of the second
# branch. Otherwise the first branch takes the best value only.
BRANCH_GAP_BITS = 4
BRANCH_SHARE = 6

GAIN_DECAY = 0.9  # weight of earlier batches in an agent's gain per node, which is an exponential mean
MIN_GAIN_SHARE = 0.25  # of the agents' mean gain per node: lower limit of an agent's weight in a batch

MAX_FRONTIER_BYTES = 1 << 26  # open nodes of an agent: 64 MiB
FRONTIER_SHARE = 1 / 64  # of the memory, for the open nodes of an agent
# Share of the free device memory for nodes' tables or factor vectors; the rest is left to libraries and other work.
DEVICE_MEMORY_SHARE = 3 / 4
STATIC_BATCH_SIZE = 1 << 10  # nodes that a batch branches whose bounds are sums of table entries
STATIC_CELLS = 1 << 27  # joined cells of the mini-buckets that give these bounds: about 0.2 seconds
TRIAL_SECONDS = 0.2  # time after which two bounders of an agent are compared
MIN_SECONDS_FOR_TRIAL = 5.0  # until the deadline; with less, dual ascent bounds the nodes
