"""Constants of how functions in files become factors."""

# Benchmark: benchmarks.formats.building.
TABLE_ENTRIES = 1024  # an automaton or a constraint over at most this many assignments is stored as a table
EXPANDED_ENTRIES = 1 << 20  # table entries or automaton steps of one function that are listed; keeps reading fast
ARRAY_ASSIGNMENTS = 100  # assignments of an expression; for fewer, NumPy is slower than closures
MIN_LOAD_SHARE = 0.5  # of a person's slots that meetings take together, from which on they are counted, not compared
STEPS_PER_BYTE = 2.0  # interpreted steps per byte of a text that is scanned
