"""Constants that steer inference, by the packages that use them: unit, reason, and the benchmark that set each one.

A cell is one entry of a joined table; it takes about a nanosecond on one core. A word is a read or write of 64 bits of
a graph; it takes about 2 ns.
"""

import numpy as np

# Time. Benchmark: benchmarks.solving.deadline_checks.
MAX_CHECK_INTERVAL = 0.1  # seconds; the longest time between two checks of the deadline
CELLS_PER_CHECK = 1 << 24  # cells, or copied entries, between two checks of the deadline: at most 0.1 s

# Threads. Benchmark: benchmarks.elimination.buckets.
MIN_TASK_CELLS = 1 << 17  # least cells of a thread's task: starting one costs about 50 microseconds
MIN_PARALLEL_CELLS = 4 * MIN_TASK_CELLS  # cells from which a bucket is spread over several threads
CELLS_PER_BUCKET = 1 << 12  # fixed cost of a bucket, in cells: some microseconds
LOW_PRIORITY_NICENESS = 4  # niceness: about two fifths of the share of a normal thread on the same core; convention

# Sizes of tables. Benchmark: benchmarks.elimination.sparse_sizes.
SMALL_TABLE_ENTRIES = 2048  # entries up to which a table is stored densely, however few of them are allowed
SMALL_STEP_CELLS = MIN_TASK_CELLS // 2  # cells of a step that takes less time than the choice of a better method for it
MIN_COMPRESSION = 16  # a smaller form replaces a table, or a table another form, that has this many times its entries
MAX_ENUMERATED_ENTRIES = 1 << 20  # entries that Python code may evaluate one by one: about a second
MAX_EXAMINED_ENTRIES = CELLS_PER_CHECK // 4  # entries of a table that is examined to improve a problem: 32 MiB
MAX_CHAIN_ENTRIES = CELLS_PER_CHECK  # entries of all chains of automata in a problem: one pass over them takes 0.1 s
MAX_EXPANDED_ENTRIES = 1 << 28  # entries of a table that is expanded on demand: 2 GiB; not measured
SAMPLE_SIZE = 64  # variables, or assignments, from which a gain is estimated; not measured

# Memory. Benchmark: benchmarks.solving.budgets.
MAX_TABLE_BYTES = 2**34  # 16 GiB; upper limit on the tables of one problem by default
INTERPRETER_BYTES = 200 << 20  # bytes that the interpreter and its libraries take before a run
MIN_CHECKED_BYTES = 1 << 22  # smaller requests, in bytes, are not checked against the budget
WORKSPACE_SHARE = 1 / 16  # of the memory, for one large workspace, and of a GPU's memory, for named buffers
# One large workspace, such as the triangles of dual ascent: 256 MiB, its share of a quarter of the default memory.
MAX_WORKSPACE_BYTES = int(WORKSPACE_SHARE * MAX_TABLE_BYTES) // 4
SHARE_PER_ITEM = 1 / 64  # of the memory, for the structures of one factor or agent, of which there may be many
DEVICE_SHARE = 0.85  # of a GPU's free memory, for an elimination's tables; of these bytes, for the nodes of bounds

# Results of earlier calls that are kept. Benchmark: benchmarks.repeated_solves.
MAX_KEY_SIZE = 1 << 12  # limit on the numbers in a key; larger problems take longer to plan than the cache saves
MAX_CACHED_SHAPES = 64  # shapes of problems, and facts about one object
MAX_CACHED_PLANS = 1 << 14  # plans and orders of agents: those of a problem with 10,000 agents fit

# Interpreted kernels. Measured once, without a benchmark.
SWITCH_STEPS = 500.0  # steps of switching all kernels of a process to the interpreter and back
MAX_INTERPRETED_STEPS = 1000 * SWITCH_STEPS  # steps of a process: half a second, as long as loading a run's kernels

# Error messages. Convention.
MAX_LISTED = 8  # known names, or values, that a message lists, so that it stays one readable line

# Compilation. What a run can do without, by beginnings of names, in the order of the part of the gap that it closes per
# second of compiling (5, 4, 2, 1.5, 1, 0.3 and 0.1 % on one core, a random network of 25 variables, 2026-11-28).
OPTIONAL_KERNELS = (
    "chains",
    "branch and bound",
    "mini-bucket bounds",
    "GPU",
    "semidefinite relaxation",
    "rounding",
    "orders",
    "block moves",
    "rates",
)

# The search for elimination orders.

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

# The division into agents, and the steps of DPOP.

# Division of a problem into agents. Not measured by a benchmark.
SIZE_TOLERANCE = 0.15  # largest relative excess of a part over an equal share of the variables
MAX_PART_RATIO = 1.5  # largest part that a narrow cut may make, relative to an equal share of the variables
MAX_MOVE_PASSES = 8  # passes over all variables that move them between parts
MAX_COSTED_DEGREES = 200_000  # sum of degrees; on a larger graph the cost of divisions is not computed
ACCEPTED_CELLS = 1e9  # any division with no more joined cells is accepted: about a second
ACCEPTED_RATIO = 4.0  # a division is accepted up to this multiple of the undivided problem's joined cells

# Pseudo-trees. Benchmark: benchmarks.many_agents.
MAX_ROOTS = 32  # depth-first trees tried per component
MAX_TREE_NODES = 10 * MAX_RULE_AGENTS  # nodes of the depth-first trees together, if there are more than two

# Memory. Benchmark: benchmarks.solving.budgets.
WORK_SHARE = 0.75  # of the budget that the problem's tables leave
STEPS_SHARE = 2 / 3  # of the work share, for the UTIL steps that stay in memory

# Bucket elimination.

# Rows of a bucket's message on the CPU. The unit of costs is the time to add an entry of a table whose row is
# contiguous. Benchmark: benchmarks.elimination.buckets.
ROW_COST = 667.0  # per row
GATHERED_COST = 4.17  # per cell, for each table whose row is gathered
MAX_ROW_CELLS = 1 << 12  # cells of a row
MAX_ROW_SUMS = 1 << 16  # entries of the sums of a row, for all values of the variable: they should stay in the cache

# Batches of eliminations. Benchmark: benchmarks.solving.gpu_rates.
MAX_LOOKUPS_PER_PLAN = 128  # look-ups of values on the CPU per plan, which take about as long as one launch

# Division of a message into rows h and columns l on a GPU. Benchmark: benchmarks.elimination.instances.
MAX_COLUMNS = 1 << 17  # assignments of l: the most for which the second operand is stored
BEST_WIDTH_BITS = 10.0  # log2 of the assignments of l for which the kernel is fastest

# Launches. Benchmarks: benchmarks.elimination.instances and benchmarks.solving.gpu_rates.
LARGE_MESSAGE = 1 << 22  # entries of a message that keep the GPU busy with large tiles
MAX_WAVE_SUMS = 1 << 26  # entries of ``sums`` that the buckets of a wave share
ENOUGH_BLOCKS = 132 * 8  # blocks that keep a GPU busy: 8 for each of an H100's 132 multiprocessors
LAUNCH_CELLS = 1 << 36  # joined cells per launch, and between two checks of the deadline: 0.1 s at the rate of an H200

# Tables that exceed the GPU's memory. Benchmark: benchmarks.elimination.streaming.
MAX_CHUNK_ENTRIES = 1 << 29  # entries of a chunk, and of one copy of the shared inputs: some hundredths of a second
PINNING_SECONDS_PER_BYTE = 4e-10  # seconds per byte for page-locking host memory, which cannot be interrupted

# The choice of processors. Benchmark: benchmarks.solving.gpu_rates, on an H200 and one x86-64 core.

SECONDS_PER_CELL = 0.7e-9  # seconds per joined cell on one core
SECONDS_PER_BOUND_CELL = 1.2e-9  # seconds per joined cell of the mini-bucket bound, with moment matching, in 64 bits
CELLS_PER_SECOND = 3e8  # joined cells of a UTIL step, or entries of a clique, per second of one core
SECONDS_PER_SPARSE_ROW = 8e-7  # seconds per row of a sparse clique on one core, for all passes
SECONDS_PER_DRAW = 5e-8  # seconds per draw of a sampler on one core
GPU_ROUND_TRIP = 9e-4  # seconds for the copies to the GPU and back
GPU_START = 1.0  # seconds to open a GPU and load the kernels
MIN_BOUND_STARTS = 2.0  # times GPU_START: bounds that take one core less do not open a GPU; not measured
MIN_BOUND_ROUND_TRIPS = 10.0  # times GPU_ROUND_TRIP: shorter bounds do not use an open GPU; not measured
SECONDS_PER_WAVE = 7e-5  # seconds for the launches of a wave: buckets that do not depend on each other
SECONDS_PER_MATCHED_BUCKET = 2.5e-4  # seconds per mini-bucket with moment matching: launches, and copies to the host
GPU_THRESHOLDS = np.array([1 << 18, 1 << 15, 1 << 12, 0])  # candidates: joined cells from which a bucket goes to a GPU
STORED_SHARE = 1 / 2  # of a GPU's memory, for tables that stay there: sparse tables or factor vectors

# Passes over junction trees. Benchmark: benchmarks.elimination.marginals.

MAX_ROW_ENTRIES = 1 << 10  # entries of a row of a clique on the CPU
MIN_RUN = 4  # contiguous entries below which a table is gathered
MAX_BLOCK_ENTRIES = 1 << 15  # entries of a message up to which one block of a GPU may compute one entry
MIN_ELIMINATED = 64  # eliminated assignments per entry from which a block shares them
CHUNK_SIZE = 32  # rows, or results of chunks, that one thread reduces

# Mini-buckets with moment matching. Benchmark: benchmarks.elimination.minibuckets.

HEADROOM = 8  # least ratio of the range of the numbers to the sum of the problem's own entries: the rest is for shifts
MIN_STEPS_PER_BLOCK = 8  # steps per thread for which another block repays its atomic maximum

# Presolve.

# Estimated time, which is equal on all ranks; measured once, without a benchmark.
SECONDS_PER_TABLE = 4e-5  # seconds of one operation on a table, without its cells
SECONDS_PER_TABLE_CELL = 8e-9  # seconds of one operation on a table, per cell

# Limits of the steps. Not measured.
MAX_CONSISTENCY_PASSES = 64  # cells that arc consistency reads, per cell of the tables; an early end leaves values
MAX_RIVALS = 2  # values per variable that all others are compared with; keeps the work linear in the tables
MAX_GROUP_VALUES = 1000  # largest domain of a variable in an all-different group; a matching takes cubic time
MAX_GROUP_STATES = 64  # states of an automaton that is examined for values that it allows once

# Entries that lose more than the incumbent are forbidden only if the smallest forbidden loss exceeds the largest
# remaining loss by this factor: otherwise they are no constraint, and the temperatures do not change. Not measured.
MIN_LOSS_RATIO = 8.0

# Sparse joins and function filtering.

# Costs in units of the time per dense joined cell. Benchmarks: benchmarks.elimination.sparse_rows and sparse_sizes.
CELLS_PER_ROW = 200.0  # per row of a sparse join, and per candidate for a row of a message
CELLS_PER_VALUE = 3.0  # per value of a candidate's vector
CELLS_PER_DENSE_ENTRY = 30.0  # per entry of a dense message, for the comparison with its bound
PARALLEL_START_CELLS = 1.1e7  # to start all cores: some milliseconds

# Division of the rows. Benchmark: benchmarks.elimination.sparse_rows.
SAMPLED_SHARE = 1 / 64  # of the ranges of rows, which are timed or counted before the others
MIN_RANGES = int(4 / SAMPLED_SHARE)  # least number of ranges, if there are as many rows: at least 4 are sampled
ROWS_PER_BLOCK = 1 << 13  # rows per block: some milliseconds of a kernel; a GPU's buffers hold as many at least
MAX_ROWS_PER_LAUNCH = 512 * ROWS_PER_BLOCK  # rows of a step's buffer on a GPU: some milliseconds of a kernel
