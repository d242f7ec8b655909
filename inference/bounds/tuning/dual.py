"""Constants of dual ascent.

A sweep passes messages once between all tables of a graph; a row is an assignment of an agent's boundary variables.
"""

import numpy as np

# Sweeps. Benchmark: benchmarks.bounds.providers.
INITIAL_SWEEPS = 30  # first sweeps on the whole graph: each helps all rows as much as one sweep of every row
WHOLE_SWEEPS_PER_ROW_SWEEP = 10  # sweeps on the whole graph per sweep of every row; bounds better than 3 or 30
MAX_INITIAL_FRACTION = 0.6  # largest part of the time for the first INITIAL_SWEEPS sweeps
RECENTRE_EVERY = 16  # sweeps between two calls of recentre, which keeps triangles' tables from drifting out of range
PRUNE_EVERY = 4  # sweeps between two removals of values, each of which reads all pairwise tables

# Smoothed sweeps. Benchmark: benchmarks.bounds.method_ablation with --disable smoothing.
MAX_TEMPERATURE_RATIO = 0.15  # first temperature, in typical deviations of a pairwise table's entries: upper limit
TEMPERATURE_PER_TRIANGLE = 0.08  # the same, times the number of triangles per pair
ROW_TEMPERATURE_RATIO = np.float32(0.25)  # first temperature of a row in that of the whole graph
FINAL_TEMPERATURE_RATIO = np.float32(0.2)  # limit of the annealed temperature in the first one
MIN_ANNEALED_SWEEPS = 8  # with fewer sweeps, the third of them at temperature 0 cannot undo the smoothing
MIN_ANNEALED_WHOLE_SWEEPS = 12  # the same on the whole graph: with fewer, exact sweeps lower the bound more
REHEATED_SWEEPS = 80  # sweeps of a later annealing, most of them at temperature 0
REHEATING_DECAY = 0.7  # factor of the temperature after an annealing that has hardly lowered the bound
MIN_REHEATING_SHARE = 0.005  # of the first temperature: later annealings that start lower bring nothing
STALLED_SHARE = 5e-5  # of the whole fall of the bound: SWEEPS_PER_LAUNCH sweeps that lower it by less have stalled
SMOOTHED_SWEEP_COST = 1.3  # time of a smoothed sweep, in exact sweeps
CONDITIONING_COST = 0.5  # time to condition on a row, in sweeps

# Time. Benchmark: benchmarks.solving.deadlines.
SECONDS_PER_CALL = 0.2  # seconds of sweeps between two checks of the deadline, and of the longest launch on a GPU
TIMED_CALLS = 3  # recent calls whose sweeps are timed; the least counts, since other processes may delay some
ROW_BATCHES = 6  # batches that the rows are processed in, so that the time limit is met
TRIAL_SWEEPS = 2  # sweeps of a first pass over the rows on a GPU, which is timed
SWEEPS_PER_LAUNCH = 16  # most sweeps on the whole graphs between two checks of the clock

# Triangles for cycles of four variables. Benchmark: benchmarks.bounds.providers.
MIN_PAIRS_PER_TRIANGLE = 4  # with fewer pairs per triangle, more triangles cost more time than they gain
MIN_RELATIVE_GAIN = 0.05  # triangles are added while the bound falls per sweep by this fraction of its earlier rate
MAX_SUMS = 1 << 28  # sums of two table entries that are evaluated in all: about one second
MAX_MIDDLES = 8  # common neighbours of a new pair that are combined with each other, the lowest numbers first

# Memory and size.
MAX_ENUMERATED_ROWS = 1 << 20  # with more rows the bound is not enumerated, but a sum of small tables
MAX_TRIANGLE_BYTES = 1 << 28  # triangles, as sums of pairs or as tables of three variables: 256 MiB
MAX_TRIPLETS = 10_000  # most triangles that become tables of three variables
MAX_ROUNDED_VARIABLES = 2048  # variables; rounding potentials to assignments of more of them takes too long
MAX_ROUNDED_ENTRIES = 1 << 22  # entries of all tables, for the same reason
# Scales of the Gumbel noise of successive rounded assignments, in typical deviations of a table's max-marginals.
ROUNDING_NOISE = (0.0, 0.03, 0.1, 0.3)
