"""Constants that steer runs, by package: unit, reason, benchmark.

The scheduler's are in ``dmcmc/anytime/scheduler/tuning.py``, those of samplers in ``samplers/contract/tuning.py``.
Limits of accepted input, sizes of pages and terminals, and what launchers prescribe stand at their use.
"""

# Local search. Benchmark: benchmarks.solving.utility_over_time, benchmarks.solving.first_answer.
MIN_SLICE_GAIN = 5e-4  # of the utility: a slice of the search that gains less is followed by a pause or by tables
LAYOUT_SECONDS_PER_ENTRY = 2e-8  # seconds per entry for laying out the columns that chains read

# Engines. Benchmark: benchmarks.with_toulbar2, benchmarks.solving.utility_over_time.
START_SECONDS_PER_ENTRY = 5e-6  # until the engine's first result, if it shares its core with other work
OWN_CORE_START_SECONDS_PER_ENTRY = 1e-6  # the same on a dedicated core
START_SECONDS_PER_HARD_ENTRY = 1.5e-7  # the same for conflicts that CP-SAT only reads

# Combinations. Benchmark: benchmarks.solving.deadline_checks, benchmarks.solving.return_to_exact.
# Factor of the table size in the next combination. Its work grows by about the same; a combination with larger tables
# is given up after this multiple of its estimated seconds.
TABLE_GROWTH_FACTOR = 4.0
# Table size of the first combination, relative to what the time allows, if the union of all agents is bounded, too: a
# combination that takes a few percent of the time gives cutoffs to the union, which then gains more.
FIRST_SIZE_WITH_UNION = 1 / 32

# Improvers. Benchmark: benchmarks.solving.utility_over_time, benchmarks.bounds.branch_and_bound.
MAX_NODE_BYTES = 1 << 34  # of the nodes of all agents of a rank (16 GiB)
JUDGED_NODES_PER_ROW = 64  # nodes per row after which searches are judged
SHARED_NODES = 64  # nodes of each rank that are shared evenly: some batches, whatever the device

# Functions in files that become factors.
# Benchmark: benchmarks.formats.building.
EXPANDED_ENTRIES = 1 << 20  # table entries or automaton steps of one function that are listed; keeps reading fast
STEPS_PER_BYTE = 2.0  # interpreted steps per byte of a text that is scanned

# Compilation. Convention: no measurement contradicts it.
COMPILE_SECONDS = 900.0  # limit of anything that compiles kernels: longer than any compilation

# Several solves. Convention: shares that no measurement contradicts.
TREE_BYTES_PER_SECOND = 5e7  # of sparse tables that are joined on one core: 40 bytes per row, 8e-7 s per row
COMPARED_AT_ONCE = 64  # factors: a call of the interpreter takes about as long as 64 comparisons of pointers

# Calendars. Benchmark: benchmarks.calendars.office.
EXPLANATION_SECONDS = 15.0  # of an explanation without a time limit
MAX_RELAXATIONS = 12  # rules that are relaxed one by one
MAX_MEETING_NODES = 2000  # search nodes per test; meetings whose test is not finished are taken to fit together
