"""Constants of presolve: unit, reason, and the benchmark that set each one."""

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
