"""Constants of local search over the whole assignment: hill climbing, chains in tournaments, turns of block moves."""

# Hill climbing. Benchmark: benchmarks.solving.first_answer.
READS_PER_TASK = 1 << 20  # table entries that one task averages, and reads of the greedy assignment between two checks
COLUMNS_PER_CHECK = 4096  # columns that NumPy reads between two checks of the deadline: some hundredths of a second

# Block moves between rounds of chains. Benchmark: benchmarks.sampling.whole_problem_search.
FIXED_WORKERS = 2  # workers with fixed work, on any machine
MAX_WORKERS = 8  # by the clock there is one worker per thread, up to this number
WORKER_CELLS_PER_SECOND = 1e9  # table cells per second of a worker, assumed with fixed work
DRAW_SECONDS = 3e-8  # seconds per draw of a chain, assumed with fixed work
SECONDS_BEFORE_ORDER = 0.03  # of block moves before an elimination order is computed

# Chains. Benchmark: benchmarks.sampling.whole_problem_search.
MAX_COLUMN_ENTRIES = 1 << 28  # entries of score columns; chains on larger problems read the tables themselves
GRAPH_DESCENT_SWEEPS = 3  # sweeps at temperature 0 after the annealed ones; ten times as many with score columns
CACHE_BYTES = 1 << 21  # bytes of a processor's cache; with larger score columns an agent makes several sweeps in turn
SWEEPS_PER_VISIT = 8  # sweeps in turn
MIN_AGENT_VARIABLES = 16  # on average, for sweeps in turn: few other variables depend on those of a large agent

# Tournaments. Benchmark: benchmarks.sampling.whole_problem_search.
# First and last temperature of the chains that compete, in typical deviations. The first ranges suit utilities of
# similar size, the others utilities of many magnitudes and constraints that are written as large costs.
COMPETING_RANGES = (
    (0.4, 0.1), (0.2, 0.02), (0.05, 0.005), (1.0, 0.01), (0.2, 0.002), (6.4, 0.05), (1.0, 0.1), (1.0, 0.001),
)  # fmt: skip
# Added if entries are forbidden; the third number is the penalty of a violation: violations are annealed first.
HARD_RANGES = ((6.4, 1.0, 16.0), (6.4, 0.05, 16.0))
FIRST_ROUND_SWEEPS = 16  # sweeps of a chain in the first round of the first tournament
MAX_ROUND_SWEEPS = 1 << 14  # sweeps of a chain in the last round of any tournament
SLOW_SWEEP_FACTOR = 3  # factor of the first round's sweeps if sweeps are slow
