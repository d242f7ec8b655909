"""Constants of the search engines: toulbar2, CP-SAT, MaxSAT, and our branch and bound."""

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
