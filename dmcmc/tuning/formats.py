"""Constants of how functions in files become factors."""

# Benchmark: benchmarks.formats.building.
EXPANDED_ENTRIES = 1 << 20  # table entries or automaton steps of one function that are listed; keeps reading fast
ARRAY_ASSIGNMENTS = 100  # assignments of an expression; for fewer, NumPy is slower than closures
STEPS_PER_BYTE = 2.0  # interpreted steps per byte of a text that is scanned
