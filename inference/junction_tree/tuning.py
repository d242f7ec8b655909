"""Constants of the passes over junction trees: unit, reason, and the benchmark that set each one.

Benchmarks: benchmarks.elimination.marginals and benchmarks.elimination.sparse_junction_trees.
"""

MAX_ROW_ENTRIES = 1 << 10  # entries of a row of a clique on the CPU
MIN_RUN = 4  # contiguous entries below which a table is gathered
MAX_BLOCK_ENTRIES = 1 << 15  # entries of a message up to which one block of a GPU may compute one entry
MIN_ELIMINATED = 64  # eliminated assignments per entry from which a block shares them
CHUNK_SIZE = 32  # rows, or results of chunks, that one thread reduces
