"""Constants that steer samplers and searches, by what they steer.

Rates of a nominal machine, which are measured, stand in ``auto/rates.py``; those that the kernels of block moves are
compiled with, in ``neighbourhood_search_kernels.py``.
"""

# The choice of methods (``local.method: auto``).

# Benchmark: benchmarks.solving.auto_sweep, benchmarks.solving.auto_times.
CPU_CELLS = 4_000_000_000  # joined cells of an exact agent without a time budget: some seconds of work
GPU_CELLS = 4_000_000_000_000  # likewise, with a GPU
FIRST_TABLE_SECONDS = 5.0  # if not all tables are exact, first tables get no more than with a budget of this length
UNTIMED_ROW_SWEEPS = 3  # sweeps per row without a time budget
SECONDS_PER_AGENT = 3e-4  # seconds per agent, whatever its method
SLICING_FACTOR = 1.5  # factor of the time of bounds, which come in time slices
UNCERTAIN_FACTOR = 7.0  # the same if the graph has few triangles: the bounds may not close the gap
MAX_TIGHT_WIDTH = 12  # induced width up to which triangles close gaps
MIN_TRIANGLE_DENSITY = 0.1  # triangles per pair and unit of width that this takes
SPARSE_PAIRS = 3  # pairs per variable up to which mini-buckets are tried in addition to dual ascent
MAX_DEVIATION = 8.0  # factor between a measured and the nominal rate: larger deviations come from other load
PARALLEL_CELLS = 1 << 19  # joined cells of a bucket from which it is taken to run on all threads, or on the GPU
REFINED_CELLS = 1 << 15  # joined cells of a bucket from which a refined estimate is worth its time

# Block moves.

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

# Samplers of an agent's rows: schedules, passes, and what an exact elimination retains.

# Temperatures. Benchmark: benchmarks.sampling.quality.
ANNEALING_RANGE = (0.35, 0.2)  # first and last temperature, in units of the model's spread; descent does the rest
# Desired number of rounds that pass states on between rows. Each has at least half as many trials; half as many rounds
# repair states, each with as many trials as all other rounds together.
WARM_ROUNDS = 8
REPAIR_END = 0.15  # last temperature of a repair, in units of the penalty: violations do not come back
DESCENT_SWEEPS = 10  # most sweeps at temperature 0 at the end of a round

# Passes. Benchmark: benchmarks.sampling.quality_over_time.
MIN_SAMPLES = 8  # trials per chain in a shortened or later pass, half of those in a first pass on a GPU; timed trials
SAMPLES_PER_RUN = 64  # trials per chain, below which a pass has fewer runs instead
MAX_SAMPLES = 1000  # trials per chain in a later pass
TASK_DRAWS = 1 << 14  # single-variable draws of a task: about a millisecond of one core
ROW_CHOICE_TRIALS = 30  # trials per chain of the short sampling that chooses the rows of a large agent
RECORDED_TRIALS = 10_000  # trials of the chains that are run again for statistics

# Passes on a GPU. Benchmark: benchmarks.sampling.gpu_samplers.
MAX_PASS_GROWTH = 16.0  # most work of a pass, in that of the one before
MAX_PASS_SECONDS = 1.5  # seconds of a pass, which cannot be interrupted

# Block moves in an agent. Benchmark: benchmarks.sampling.blocks.
CELLS_PER_DRAW = 100  # table cells that count as one single-variable draw of the requested work
# Single-variable draws are frozen, so that block moves replace them, if few of them change a value at this temperature,
# in units of the typical spread: chains spend much of their time there.
FROZEN_TEMPERATURE = 0.2
MAX_FROZEN_MOBILITY = 0.02  # mean share of these draws that change a value

# Exact elimination. Benchmark: benchmarks.elimination.slices, benchmarks.solving.return_to_exact.
MAX_RETAINED_BYTES = 1 << 28  # of an agent's tables that are retained until VALUE asks for hidden values
MIN_RETAINED_BYTES = 1 << 16  # of an agent's tables that are always retained
# Share of the cells of an agent that the largest part may have on any rank; also the cells of an undivided elimination
# in those of slices that fit a GPU, at least: streaming tables through a GPU is slower.
MAX_DIVIDED_SHARE = 0.8
MAX_OVERRUN = 3.0  # factor of its proportional part of the time that one agent may take

# Bounds of rows on several ranks. Benchmark: benchmarks.ranks.
ENTRIES_PER_SENT = 8  # entries processed in the time of sending one

# What several packages share: seconds, shares of the time and of the memory, sizes of tables.

# Seconds. Benchmark: benchmarks.solving.deadline_checks.
CHECK_SECONDS = 0.02  # between two looks at another process or thread; shorter work is not begun; longest GPU launch
SLICE_SECONDS = 0.25  # of work between two questions whether it should go on; first slice, least of estimated work
GRACE_SECONDS = 0.5  # for a process to start, or for work to end after the deadline; launchers wait longer

# Shares of the time. Convention: no measurement contradicts them.
UNTRIED_SHARE = (
    0.1  # for work whose gain is unknown, a trial or a preparation, at most; for work without gains, at least
)
# Most that the main part of a task may take if other work follows, such as all eliminations of a run. If not all fit,
# they begin in half of it, and the rest is allocated later, by gaps.
MAIN_SHARE = 0.5
UNNOTICED_SHARE = 0.02  # of local search before tables, or by which a combination may end later
FIRST_SHARE = 0.25  # most that a first attempt may take if the main work follows: a proof, a descent, one engine of two
PLANNED_SHARE = 0.8  # most that work with an estimated length may take, because estimates are uncertain

# Shares of the memory. Benchmark: benchmarks.solving.budgets, over memory limits.
MEMORY_SHARE = 0.25  # a search in addition to the tables, nodes, a cache; twice this for tables of an engine or a union
COPY_MEMORY_SHARE = 1 / 16  # a copy of the problem that a search reads; workspaces and starts take parts of this

# Judgements. Convention: no measurement contradicts them.
MAJORITY_SHARE = 0.5  # from which on a property of parts counts as one of the whole
PAYBACK_FACTOR = 5.0  # seconds that must be left per second of a preparation, so that it pays
# Rows of an agent up to which they are not divided among ranks, and mini-buckets are tried in addition to dual ascent;
# samples of rows have this size, or twice it.
FEW_ROWS = 4

# Sizes. Convention: powers of two that no measurement contradicts.
PLAIN_TABLE_ENTRIES = 1 << 10  # entries of a table that needs no compact form, such as an automaton or a list
LARGE_ENTRIES = 1 << 22  # table entries: 32 MiB, read in some hundredths of a second
MAX_COPIED_ENTRIES = 1 << 24  # table entries, or values of all chains, of a copy; less work is not divided among ranks
GPU_CHAINS = 1024  # chains that use a GPU well: fewer leave much of it idle, more than twice as many make rounds long
READS_PER_LAUNCH = 20_000  # reads in sequence between two points at which a GPU launch can end: some milliseconds

# The search among assignments by violated constraints, before and after its kernels are compiled.

# Walks. Benchmark: benchmarks.constraints.random_problems, benchmarks.meetings.run.
FIRST_MOVES = 50_000  # moves of the first cycle, and of the first search between two checks of the deadline
MAX_FIRST_CALLS = 20  # of this number of moves, until the search for a feasible assignment gives up
# Ratio of the moves of a cycle, or of a repair, to those of the one before; of the weights of violated constraints; of
# their first weight to the largest change of the soft cost by one move.
CYCLE_GROWTH = 1.5
FOCUS = 0.5  # probability that a move starts from a violated constraint, or a repair looks only at violated cells
MAX_CHANGES = 256  # variables that one move changes
SAMPLED_MOVES = 2000  # moves by which the changes of the soft cost are measured
MIN_MEASURED_MOVES = 100  # moves from which a standard deviation or a mean is computed

# Temperatures of a cycle, and the moves at each. Benchmark: benchmarks.constraints.random_problems.
TEMPERATURES = 48  # temperatures of a cycle
SMALL_QUANTILE = 0.05  # of the changes of the soft cost, which decides the last temperature
LEAST_RATIO = 0.1  # last temperature, relative to that change; least moves at a temperature, relative to the most
MAX_SPREAD = 100.0  # limit on the standard deviation of the total, in temperatures

# Kinds of moves. Benchmark: benchmarks.constraints.random_problems.
WORK_PARTS = (0.4, 0.15, 0.15, 0.2, 0.1)  # of the work: single, pair, swap, ejection chain, rebuild
EVALUATION_WORK = 0.3  # work of evaluating one value, in changes of a value

# Repair by NumPy until kernels are compiled. Benchmark: benchmarks.solving.first_answer.
MAX_UNCOMPILED_VARIABLES = 2000  # variables up to which NumPy makes the first assignment, about 1 ms per variable
MAX_COMBINATIONS = 1 << 16  # combinations of values of two variables that are examined at once
MAX_CANDIDATES = 4  # units of a violated constraint that are examined before one of them changes
SIDEWAYS_PROBABILITY = 0.3  # of a change that neither gains nor loses, where no change of what is violated gains
NOISE = 0.02  # probability of a random change of a violated constraint (Selman, Kautz and Cohen, AAAI 1994)
FIRST_STEPS = 300  # steps of the first repair, besides two per unit

# Search engines: toulbar2, CP-SAT, MaxSAT, and our branch and bound.

NICENESS = 15  # of an engine in the background: about a thirtieth of a core that other work wants, too
# Nodes of our own engines between two reports; the fixed part of a report takes some microseconds.
NODES_PER_REPORT = 1000

# toulbar2. Benchmark: benchmarks.with_toulbar2, benchmarks.solving.utility_over_time.
RESTART_GAIN = 0.1  # restart if a known assignment closes this share of the gap between the engine's best and its bound
MIN_TRIED_SECONDS = 2.0  # of a search before it is called unpromising; half of it before a pause, or as a trial
# Unpromising if it needs this many times the remaining time: searches usually end faster than their bounds suggest.
UNPROMISING_FACTOR = 6.0

# CP-SAT. Benchmark: benchmarks.meetings.one_run.
MAX_CLIQUE_VALUES = 4096  # values in one local conflict graph, whose matrices have this many rows and columns
MAX_LOAD_TERMS = 1 << 17  # terms of a cumulative constraint up to which it is also stated as a sum for each time
MAX_RELAXATION_TERMS = 3_000_000  # entries of the linear relaxation's matrix: about 200 bytes each in the solver
LITERAL_TUPLES = 4  # tuples of a table per value of its variables, up to which each has a literal
PREFERRED_PART = 0.1  # part of all values that this search may use

# Clauses. Benchmark: benchmarks.meetings.maxsat.
MAX_CLAUSE_LITERALS = 32  # literals up to which equality (CP-SAT) and "at most one" (MaxSAT) are stated by clauses

# MaxSAT. Benchmark: benchmarks.meetings.maxsat.
MAX_DIFFERENT_COSTS = 4  # with few different costs of similar size the lower bound rises by large cores
MAX_COST_RATIO = 16  # largest over smallest of these costs
MAX_LITERALS = 20_000_000  # of the formula, about 100 bytes each with the engine's watches and learned clauses

# Path consistency in branch and bound. Benchmark: benchmarks.papers.path_consistency.
# Passes end when two of them, one in each direction, raise the bound by less than this part of it. The bound converges
# like that of dual ascent: most of its gain is made in the first passes, and a pass costs less than some nodes.
MIN_PASS_GAIN = 1e-3
MAX_PASSES = 100  # passes in all

# Local search over the whole assignment: hill climbing, chains in tournaments, turns of block moves.

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
