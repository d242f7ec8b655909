"""Constants of sparse joins and of function filtering: unit, reason, and the benchmark that set each one."""

# Costs in units of the time per dense joined cell. Benchmarks: benchmarks.elimination.sparse_rows and sparse_sizes.
CELLS_PER_ROW = 200.0  # per row of a sparse join, and per candidate for a row of a message
CELLS_PER_VALUE = 3.0  # per value of a candidate's vector
CELLS_PER_DENSE_ENTRY = 30.0  # per entry of a dense message, for the comparison with its bound
PARALLEL_START_CELLS = 1.1e7  # to start all cores: some milliseconds

# Division of the rows. Benchmark: benchmarks.elimination.sparse_rows.
SAMPLED_SHARE = 1 / 64  # of the ranges of rows, which are timed or counted before the others
MIN_RANGES = int(4 / SAMPLED_SHARE)  # least number of ranges, if there are as many rows: at least 4 are sampled
ROWS_PER_BLOCK = 1 << 13  # rows per block: some milliseconds of a kernel; a GPU's buffers hold as many at least
MAX_ROWS_PER_LAUNCH = 512 * ROWS_PER_BLOCK  # rows of a step's buffer on a GPU: some milliseconds of a kernel
