"""Constants of inference that several packages share, and those of its lowest packages: unit, reason, and benchmark.

A cell is one entry of a joined table; it takes about a nanosecond on one core. The constants of a higher package stand
in its own ``tuning.py``.
"""

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
