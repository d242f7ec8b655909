"""Constants of mini-bucket bounds, of their combination with dual ascent, and of exact residual problems."""

# Division of the time between dual ascent and mini-buckets. Benchmark: benchmarks.bounds.providers.
LEADER_WEIGHT = 4.0  # share of the time of the method that gains fastest, relative to each other one
MIN_STEP_SECONDS = 0.05  # shortest step of dual ascent
STEP_FRACTION = 0.25  # length of a step of dual ascent, relative to the time that it has had
ENTRIES_PER_SWEEP = 1 << 20  # mini-bucket entries per sweep of dual ascent, if the amount of work is fixed
FIRST_FRACTION = 0.2  # of a bound's time, after which it is asked whether the bound suffices

# Mini-buckets of the potentials. Benchmark: benchmarks.elimination.minibuckets.
DUAL_SWEEPS = 6  # sweeps of the dual ascent that comes first, in the unit of sweeps per row
MAX_CELLS = 4_000_000_000  # joined cells of the largest z that is tried
MAX_BYTES = 1 << 31  # tables of the largest z that is tried: 2 GiB
SECONDS_PER_BUCKET = 4e-6  # overhead of a mini-bucket, in addition to its cells

# Elimination order of the bounder.
ORDER_BUDGET = 300_000  # work of the search for an elimination order, in machine words of 2 ns each: under 1 ms
