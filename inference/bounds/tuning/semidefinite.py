"""Constants of semidefinite bounds.

A unit is half the root mean variance of an agent's pairwise tables. Benchmarks: benchmarks.bounds.counted_nodes, and on
a GPU benchmarks.bounds.per_row_semidefinite; schedules were tuned on meeting problems of 25 and 50 variables with both
kinds of utility tables.
"""

from dmcmc.inference.bounds.tuning.search import MAX_NODES_PER_BATCH

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
