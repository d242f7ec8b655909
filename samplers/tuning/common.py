"""Constants that several packages share: seconds, shares of the time and of the memory, sizes of tables."""

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
