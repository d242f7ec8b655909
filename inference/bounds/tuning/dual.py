"""Constants of dual ascent.

A sweep passes messages once between all tables of a graph; a row is an assignment of an agent's boundary variables.
"""

import numpy as np

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
