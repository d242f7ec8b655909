"""Constants that steer the bounds of rows, by method: unit, reason, and the benchmark that set each one.

A row is an assignment of an agent's boundary variables. A sweep passes messages once between all tables of a graph. A
node is a row with the values that each hidden variable may take. A unit is half the root mean variance of an agent's
pairwise tables. Benchmarks: benchmarks.bounds.branch_and_bound, benchmarks.bounds.counted_nodes, and on a GPU
benchmarks.bounds.per_row_semidefinite. Schedules of semidefinite bounds were tuned on meeting problems of 25 and 50
variables with both kinds of utility tables.
"""

import numpy as np

from dmcmc.inference.tuning import (
    CELLS_PER_BUCKET,
    CELLS_PER_CHECK,
    MAX_CHECK_INTERVAL,
    MAX_EXPANDED_ENTRIES,
    MAX_WORKSPACE_BYTES,
    SECONDS_PER_BOUND_CELL,
    SHARE_PER_ITEM,
    WORKSPACE_SHARE,
)

# Dual ascent.

# Sweeps. Benchmark: benchmarks.bounds.providers.
WHOLE_SWEEPS_PER_ROW_SWEEP = 10  # sweeps on the whole graph per sweep of every row; bounds better than 3 or 30
# First sweeps on the whole graph: each helps all rows as much as one sweep of every row.
INITIAL_SWEEPS = 3 * WHOLE_SWEEPS_PER_ROW_SWEEP
MAX_INITIAL_FRACTION = 0.6  # largest part of the time for the first INITIAL_SWEEPS sweeps
RECENTRE_EVERY = 16  # sweeps between two calls of recentre, which keeps triangles' tables in range, and of a launch
PRUNE_EVERY = 4  # sweeps between two removals of values, each of which reads all pairwise tables

# Smoothed sweeps. Benchmark: benchmarks.bounds.method_ablation with --disable smoothing.
MAX_TEMPERATURE_RATIO = 0.15  # first temperature, in typical deviations of a pairwise table's entries: upper limit
TEMPERATURE_PER_TRIANGLE = 0.08  # the same, times the number of triangles per pair
ROW_TEMPERATURE_RATIO = np.float32(0.25)  # first temperature of a row in that of the whole graph
FINAL_TEMPERATURE_RATIO = np.float32(0.2)  # limit of the annealed temperature in the first one
MIN_ANNEALED_SWEEPS = 8  # with fewer sweeps, the third of them at temperature 0 cannot undo the smoothing
REHEATED_SWEEPS = 5 * RECENTRE_EVERY  # sweeps of a later annealing, most of them at temperature 0
REHEATING_DECAY = 0.7  # factor of the temperature after an annealing that has hardly lowered the bound
MIN_REHEATING_SHARE = 0.005  # of the first temperature: later annealings that start lower bring nothing
STALLED_SHARE = 5e-5  # of the whole fall of the bound: RECENTRE_EVERY sweeps that lower it by less have stalled
SMOOTHED_SWEEP_COST = 1.3  # time of a smoothed sweep, in exact sweeps

# Time. Benchmark: benchmarks.solving.deadline_checks.
TIMED_CALLS = 3  # recent calls whose sweeps are timed, of which the fastest counts, and first sweeps of rows on a GPU
BLOCKS_PER_MULTIPROCESSOR = 2  # blocks that share a multiprocessor and its threads, if their memory permits
ROW_BATCHES = 6  # batches that the rows are processed in, so that the time limit is met

# Triangles for cycles of four variables. Benchmark: benchmarks.bounds.providers.
MIN_PAIRS_PER_TRIANGLE = 4  # with fewer pairs per triangle, more triangles cost more time than they gain
MIN_RELATIVE_GAIN = 0.05  # triangles are added while the bound falls per sweep by this fraction of its earlier rate
MAX_MIDDLES = 8  # common neighbours of a new pair that are combined with each other, the lowest numbers first

# Memory and size.
MAX_ROUNDED_VARIABLES = 2048  # variables; rounding potentials to assignments of more of them takes too long
# Scales of the Gumbel noise of successive rounded assignments, in typical deviations of a table's max-marginals.
ROUNDING_NOISE = (0.0, 0.03, 0.1, 0.3)

# Mini-buckets.

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

# Branch and bound over rows.

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
MAX_EVALUATED_ENTRIES = 1 << 14  # of factors, by random assignments that check a bound of the CPU; about 10 ms
MAX_NODES_PER_BATCH = 512  # larger batches are no faster, and the time may run out between two batches
PREPARED_CELLS = 8 * CELLS_PER_CHECK  # joined cells of a preparation that precedes the bounds: about 0.2 seconds
TRIAL_SECONDS = 2 * MAX_CHECK_INTERVAL  # time after which two bounders of an agent are compared
MIN_SECONDS_FOR_TRIAL = 25 * TRIAL_SECONDS  # until the deadline; with less, dual ascent bounds the nodes

# Nodes on a GPU. Benchmark: benchmarks.bounds.branch_and_bound with --device cuda.
NODES_PER_BLOCK = 4  # nodes of a batch per concurrent block: keeps the host work between two launches small
MAX_ENTRIES_PER_BLOCK = 16 * NODES_PER_BLOCK  # an agent's buffer entries per block, at most: those of 16 batches

# Semidefinite relaxations.

# Schedules of descents.
ROOT_STEPS = 140  # steps of a row, and of the first descent for the term that rows share
BRANCH_STEPS = 45  # steps of a branch, and of later descents; 35 and 60 end higher after as much time
INITIAL_TEMPERATURE = 0.04  # units
FINAL_TEMPERATURE = 0.0005  # units
ROOT_STEP_SIZE = 0.018  # units; first step size of a row
BRANCH_STEP_SIZE = 0.024  # units; first step size of a branch
FINAL_STEP_SIZE = 0.0003  # units
TEMPERATURE_EXPONENT = 3.7  # of the share of steps made: the temperature falls late
STEP_SIZE_EXPONENT = 2.0  # of the share of steps made: the step size falls late
WARM_UP_SHARE = 0.2  # of the steps: the step size rises first, since the initial point comes from another node

# Steps.
MAX_UTILITY_DROP = 50.0  # units: limit of a max-marginal's distance to the best of its variable; limits messages
MESSAGE_DAMPING = 0.8  # damping factor of the message updates
MESSAGE_SWEEPS = 2  # message updates of all variables per step; once ends higher, a third time brings nothing
MOMENTUM = 0.9  # decay of the running mean of gradients (Adam's beta_1)
SECOND_MOMENT_DECAY = 0.6  # decay of the running mean of squared gradients (Adam's beta_2), one per factor vector
ADAM_EPSILON = 1e-6  # added to the root of the second moment (Adam's epsilon)
STEPS_PER_CHECK = 10  # steps between two checks for the best point so far
MIN_EIGENVALUE_RATIO = 1 / 64  # of the most negative eigenvalue: smaller ones cost more time than they gain

# Branch and bound.
DOMAIN_PARTS = 4  # parts into which a domain of at least twice as many values is split
PLANNED_TIME_SHARE = 0.8  # of the time is planned for a batch, or for the relaxation; the rest is for dual ascent
MIN_NODES_FOR_TIMING = 32  # a smaller batch says little about the time per node
MIN_STEP_SECONDS = 2e-4  # estimated seconds of a step of a small batch
STEPPED_SECONDS_PER_PRODUCT = 2e-14  # seconds of a GPU's step per node, pair of values and component of the vectors
MAX_STORED_FACTORS = 256 * MAX_NODES_PER_BATCH  # nodes whose factor vectors are stored

# Which agents are relaxed, and for how long.
MIN_HIDDEN_VARIABLES = 30  # hidden variables of an agent, at least
MIN_HIDDEN_VARIABLES_ON_GPU = 16  # hidden variables of an agent, at least, on a GPU
MIN_DENSITY = 0.2  # share of the variable pairs with a factor; below it, triangles bound as well
MAX_RELAXED_ROWS = 1 << 12  # rows of an agent
TRIAL_STEPS = 3 * STEPS_PER_CHECK  # steps after which a relaxation can be judged; half as many gain little
MIN_SECONDS_AFTER_SEARCH = 20.0  # about twice the seconds that a relaxation takes to overtake a branch and bound

# Estimated times on the CPU, measured for 600 and 1200 values (40 and 6.7 ms a step).
SECONDS_PER_ENTRY = 1e-8  # seconds of a step per pair of values
SECONDS_PER_PRODUCT = 1.45e-11  # seconds of a step per pair of values and value: vectors have half as many components
START_STEPS = STEPS_PER_CHECK  # duration of the eigenvalue decomposition, in steps; an upper estimate
CERTIFICATE_STEPS = 3  # duration of a certificate, in steps
