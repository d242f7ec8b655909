"""Constants of solving: planning, division, presolve, first tables and their combination.

A row is an assignment of an agent's boundary variables; a joined cell is one entry of the join of a bucket's tables.
Sizes of numbers and records in memory, codes and file formats are not here: they follow from the code.
"""

# The plan. Benchmark: benchmarks.solving.budgets.
PLANNING_TIME_PART = 0.1  # part of the time budget after which orders and trees are used as they are
ORDER_TIME_PART = 0.05  # part of the time budget for the search for one elimination order, at most
ORDER_WORDS_PER_SECOND = 3e8  # 64-bit words of bit sets that this search processes, by which its effort is counted
SOON_SECONDS = 0.2  # seconds in which exact tables prove the optimum "soon", so that other work can wait
SOON_TIME_PART = 0.02  # part of the time budget for the same, if that is less
RESULT_SECONDS_PER_AGENT = 1e-4  # seconds per agent to collect its part of the result, on all ranks
RESULT_TIME_PART = 0.05  # part of the time budget for this, at most

# Whether tables can be made in time. Benchmark: benchmarks.many_agents, on x86-64 at 3 GHz.
MIN_ESTIMATED_AGENTS = 1000  # fewer agents are planned without an estimate
SECONDS_PER_PLANNED_AGENT = 4e-4  # seconds to survey an agent, plan and make its table, and send its messages, at least
SECONDS_PER_SEPARATOR_VARIABLE = 4e-7  # seconds to compare two pseudo-trees (2e-7 for one) and to size UTIL steps

# A problem that rank 0 scatters. Benchmark: benchmarks.ranks.
SCATTERED_BYTES = 1 << 25  # bytes of a problem from which rank 0 keeps it to itself and scatters it
SCATTERED_MEMORY_PART = 0.25  # part of a rank's memory from which a problem with a time budget is scattered
SHARED_MEMORY_FACTOR = 2  # with memory for this many times all tables, it is divided as if every rank had all of them
MAX_STORED_SEPARATORS = 1000  # agents up to which each rank stores all separators; computed when needed for more

# Presolve. Benchmark: benchmarks.solving.solve_instances.
MIN_PRESOLVED_CELLS = 1e7  # joined cells; a smaller elimination is faster than presolve
PRESOLVE_TIME_SHARE = 0.1  # largest share of the time budget
PRESOLVE_MEMORY_SHARE = 0.25  # largest share of the memory budget
MIN_PROMISE = 0.2  # smallest reduction that a sample of variables promises (several agents, no hard constraints)
MIN_REMOVED_SHARE = 0.05  # smallest share of variables, values or entries whose removal justifies a new problem

# UTIL steps and their slices. Benchmark: benchmarks.elimination.slices.
STEP_TIME_PART = 0.1  # part of the time budget for one agent's UTIL step
ALL_STEPS_TIME_PART = 0.5  # part of the time budget for all UTIL steps
MINI_BUCKET_SLOWDOWN = 8  # divisor of the bytes of mini-buckets that take as long as exact tables: they are compared
MAX_PLANNED_AGENTS = 500  # agents of a problem whose UTIL steps are planned in advance, at most
SLICE_MEMORY_DIVISOR = 4  # a slice gets this part of the memory for UTIL steps, because its tables are not retained
MAX_SLICED_AGENTS = 100  # agents of a problem that combine.method: auto slices, at most
MAX_SLICED_CELLS = 4e9  # cells of sliced UTIL steps that combine.method: auto accepts without a time budget
MAX_SLICED_STEPS = 1e5  # steps that combine.method: auto accepts
MAX_JOIN_FACTOR = 1e4  # multiple of the accepted cells; if a single join is larger, no slices are searched for
SLICED_CELL_SECONDS = 1.7e-10  # seconds per cell if a step reuses the memory of its result
SLICED_STEP_SECONDS = 3e-4  # seconds per step besides its cells

# Sampled rows. Benchmark: benchmarks.sampling.quality.
MAX_SAMPLED_ROWS = 1 << 17  # rows of a sampled agent's table up to which all rows are sampled
MAX_LISTED_ROWS = 4096  # rows that are listed otherwise, at most
MIN_LISTED_ROWS = 64  # rows that are listed, at least, however little memory there is
PROMISING_DIVISOR = 4  # a quarter of the rows is sampled further, and at least this many rows

# The first tables. Benchmark: benchmarks.solving.utility_over_time.
EXACT_SHARE = 0.5  # share of the time budget after which exact eliminations are given up if other agents are sampled
ALL_EXACT_SHARE = 0.8  # share of the time budget after which they are given up if all agents are exact
ELIMINATION_TOLERANCE = 2.0  # multiple of their estimated seconds after which they are given up if other agents wait
NEVER_GIVEN_UP_PART = 0.05  # part of the time budget: eliminations that take less in all are never given up
FAILURE_COST_FACTOR = 2.0  # multiple of its estimate that an elimination is taken to cost after an early failure
INITIAL_SHARE = 0.25  # share of a long time budget for the first tables
SAMPLING_SHARE = 0.2  # share of the time for first tables that the first samples may take
FIRST_SWEEPS = 3  # sweeps of the dual ascent per row in runs without a time budget
BATCH_SECONDS = 2.0  # estimated seconds of sampling after which finished tables are saved in the checkpoint

# Deadlines. Benchmark: benchmarks.solving.deadline_checks.
MIN_EXACT_SECONDS = 0.1  # seconds that exact agents get even if the budget is over
MIN_FIRST_BOUND_SECONDS = 0.02  # shortest time for an agent's first bound, seconds
FIRST_ANSWER_GRACE = 0.25  # seconds after the deadline or Ctrl-C for a useful first answer
ONE_OPT_GRACE = 0.3  # seconds after the deadline in which an answer may still be made 1-optimal
DELIVERY_GRACE_SECONDS = 0.7  # shortest time after the deadline until the best answer so far is delivered
DELIVERY_GRACE_SHARE = 0.03  # of the time left at the start of the guarded work, if that is longer
SAVING_INTERVAL = 1.0  # shortest time between two writes of the best assignment, seconds

# The search before tables. Benchmark: benchmarks.sampling.whole_problem_search.
SWEEPS = 400  # sweeps (passes over the variables) of all chains together, without a time budget

# Bounds of rows. Benchmark: benchmarks.bounds.providers.
MAX_EXAMINED_ROWS = 1 << 20  # rows of a table; larger tables are not examined row by row
MAX_SEARCHED_ROWS = 1 << 16  # rows that branch and bound accepts at most: it starts with one node per row
MIN_NODES_PER_ROW = 4  # with time for fewer nodes per row, branch and bound is excluded: dual ascent gains more
MAX_TRIAL_PART = 0.6  # largest part of the remaining time after which a relaxation has to show whether it helps
GPU_TRIAL_SECONDS = 1.0  # seconds for the start and the first steps of about ten agents on a GPU

# Function filtering. Benchmark: benchmarks.solving.solve_instances.
# Attempts, one after the other, each a pair: table entries of the mini-buckets whose bound decides which tuples are
# removed, and number of joined rows after which the next attempt starts (1 << 62: no limit). A tighter bound removes
# more tuples. The second group is for factors that a dual ascent has reparametrised, whose largest entries are smaller.
FILTERING_ATTEMPTS = ((20_000, 2_000_000), (6_000_000, 1 << 62), (60_000_000, 1 << 62))
REPARAMETRISED_ATTEMPTS = (FILTERING_ATTEMPTS[0], FILTERING_ATTEMPTS[2])
MAX_FILTERED_CELLS = 1e19  # joined cells from which filtering is not tried: 1e16 cells take half a minute
MAX_UNTIMED_ROWS = 50_000_000  # joined rows of a run without time budget: about a minute
FILTERING_MEMORY_DIVISOR = 8  # part of the memory for the mini-buckets' entries, as a divisor
# An attempt is given up if more quanta than this end before its bounds are ready, or one of them takes more than a
# quarter (the inverse) of the remaining time.
MAX_SHORT_QUANTA = 4
FIRST_ROWS_SECONDS = 5.0  # seconds that the first rows of a message may take
CONCLUSIVE_PART = 0.1  # part of a message's rows from which its total time is estimated
