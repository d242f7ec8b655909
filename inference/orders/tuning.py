"""Constants of the search for elimination orders: unit, reason, and the benchmark that set each one.

A word is a read or write of 64 bits of a graph; it takes about 2 ns on one core.
"""

# Budgets of searches, in words: each is ten times the one before it. Benchmark: benchmarks.elimination.orders.
SHORT_BUDGET = 100_000  # words of a search for one of many estimates: 0.2 ms
SMALL_BUDGET = 10 * SHORT_BUDGET  # words of a search for one agent of many, and of the windows of one order: 2 ms
DEFAULT_BUDGET = 10 * SMALL_BUDGET  # words of a search, and of subtree reordering without a gain before it ends: 20 ms
MAX_SEARCH_WORDS = 10 * DEFAULT_BUDGET  # limit on a search, and on a rule; subtree reordering gains more beyond
LONG_BUDGET = 10 * MAX_SEARCH_WORDS  # words, about 3 s; for runs that consist of one elimination which takes longer

# Sizes of problems. Not measured, except for MAX_EXACT_VARIABLES (benchmarks.elimination.orders).
MAX_EXACT_VARIABLES = 12  # variables with an exact order, besides those that are safe to eliminate first: 2 ms
MAX_INTERPRETED_VARIABLES = 128  # variables of an estimate in Python code, which then takes some milliseconds
MAX_BITSET_VARIABLES = 1 << 13  # variables of an estimate; the graph is a matrix of bits: 8 MiB
MAX_RULE_AGENTS = 2000  # agents of an order by a greedy rule; their graph is a matrix, which grows with the square
MAX_EXACT_CELLS = 1e12  # joined cells; a problem with more is not eliminated exactly, so its order is not optimised

# Noisy greedy orders. Benchmark: benchmarks.elimination.orders.
HIGH_NOISE = 2.0  # costs are multiplied by factors of 1 to 3; also the noise of a sweep in bits of log2 cells
LOW_NOISE = HIGH_NOISE / 4  # costs are multiplied by factors of 1 to 1.5
ORDERS_PER_BATCH = 2  # greedy orders per batch; windows improve the best of them
PATIENCE_SHARE = 0.5  # of the budget may pass without a gain, in addition to twice the work at the last one
MIN_IDLE_BATCHES = 100  # batches without a gain before the search may end early

# Reordering of subtrees. Benchmark: benchmarks.elimination.orders.
MIN_REORDERED_CELLS = float(MAX_SEARCH_WORDS)  # cells from which on subtrees are reordered
SUBTREE_WORDS_PER_CELL = 0.125  # words of subtree reordering per cell
SUBTREE_BUDGET_RATIO = 20.0  # words of subtree reordering per word of the budget: upper limit
STARTS = 4  # number of independent searches; the best one continues with the remaining work
START_SHARE = 0.08  # of the work, for each of them
START_TEMPERATURE = 0.01  # mean accepted increase at the start of annealing, as a share of all cells
MAX_CELL_RATIO = 64.0  # times the cells of an order: an order with more is not improved; of 1 / this, all are safe
MIN_PIECE_SIZE = MAX_EXACT_VARIABLES  # variables of the smallest piece, about
MAX_CUTS = 64  # cuts of one search for vertex separators; the search ends when they are full

# Windows: the best order of some neighbouring vertices. Benchmark: benchmarks.elimination.orders.
SMALL_WINDOW = 5  # vertices of a window in a quick improvement: 32 subsets
LARGE_WINDOW = 8  # vertices of a window in a thorough improvement: 256 subsets
FEW_ROUNDS = 3  # rounds of a quick improvement
MANY_ROUNDS = 40  # rounds of a thorough improvement
