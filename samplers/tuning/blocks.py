"""Constants of block moves. Those that the kernels are compiled with stand in ``neighbourhood_search_kernels.py``."""

# Blocks. Benchmark: benchmarks.sampling.blocks.
MAX_BLOCK_VARIABLES = 1 << 12  # variables of a grown block, and of a graph for which an elimination order is computed
ORDER_WORK = 2_000_000  # operations of the search for that order, about 0.1 s
BUCKET_CELLS = (1 << 8, 1 << 12, 1 << 15, 1 << 18)  # limits of the cells of a bucket, between which a bandit chooses

# Temperatures. Benchmark: benchmarks.sampling.blocks.
FIRST_TEMPERATURES = (0.1, 0.02, 0.4, 0.1)  # of the cycles in turn, in typical deviations of a conditional utility
COOLING_RATIO = 1 / 30  # last temperature of a cycle over the first
ANNEALED_STEPS = 10  # steps of a cycle above temperature 0
COLD_STEPS = 4  # steps at temperature 0 after them
STEP_CELLS = 1 << 14  # cells of a step, per variable; doubled when all first temperatures have been used, and at first
MAX_DOUBLINGS = 8  # of the cells of a step

# Starts from mini-buckets. Benchmark: benchmarks.sampling.blocks.
MAX_START_FACTORS = 20_000  # more factors take too long to plan
START_TEMPERATURES = (0.0, 0.1, 0.3, 0.03)  # in turn, in typical deviations of a variable's conditional utilities

# Chains on a GPU. Benchmark: benchmarks.sampling.gpu_blocks.
MAX_COPIES = 64  # chains per row
MAX_MOVES = 32  # moves per launch
MAX_MOVE_CELLS = 1 << 31  # cells of a move, in all chains: about a tenth of a second
