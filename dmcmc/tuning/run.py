"""Constants of compilation, of what calls several solves, and of explanations of calendars."""

# Compilation. Convention: no measurement contradicts it.
COMPILE_SECONDS = 900.0  # limit of anything that compiles kernels: longer than any compilation

# Several solves. Convention: shares that no measurement contradicts.
TREE_BYTES_PER_SECOND = 5e7  # of sparse tables that are joined on one core: 40 bytes per row, 8e-7 s per row
COMPARED_AT_ONCE = 64  # factors: a call of the interpreter takes about as long as 64 comparisons of pointers

# Calendars. Benchmark: benchmarks.calendars.office.
EXPLANATION_SECONDS = 15.0  # of an explanation without a time limit
MAX_RELAXATIONS = 12  # rules that are relaxed one by one
MAX_MEETING_NODES = 2000  # search nodes per test; meetings whose test is not finished are taken to fit together
