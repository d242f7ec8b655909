"""Constants of how functions in files become factors."""

# Benchmark: benchmarks.formats.building.
EXPANDED_ENTRIES = 1 << 20  # table entries or automaton steps of one function that are listed; keeps reading fast
STEPS_PER_BYTE = 2.0  # interpreted steps per byte of a text that is scanned
