"""Constants of bucket elimination: unit, reason, and the benchmark that set each one."""

# Rows of a bucket's message on the CPU. The unit of costs is the time to add an entry of a table whose row is
# contiguous. Benchmark: benchmarks.elimination.buckets.
ROW_COST = 667.0  # per row
GATHERED_COST = 4.17  # per cell, for each table whose row is gathered
MAX_ROW_CELLS = 1 << 12  # cells of a row
MAX_ROW_SUMS = 1 << 16  # entries of the sums of a row, for all values of the variable: they should stay in the cache

# Batches of eliminations. Benchmark: benchmarks.solving.gpu_rates.
MAX_LOOKUPS_PER_PLAN = 128  # look-ups of values on the CPU per plan, which take about as long as one launch

# Division of a message into rows h and columns l on a GPU. Benchmark: benchmarks.elimination.instances.
MAX_COLUMNS = 1 << 17  # assignments of l: the most for which the second operand is stored
BEST_WIDTH_BITS = 10.0  # log2 of the assignments of l for which the kernel is fastest

# Launches. Benchmarks: benchmarks.elimination.instances and benchmarks.solving.gpu_rates.
LARGE_MESSAGE = 1 << 22  # entries of a message that keep the GPU busy with large tiles
MAX_WAVE_SUMS = 1 << 26  # entries of ``sums`` that the buckets of a wave share
ENOUGH_BLOCKS = 132 * 8  # blocks that keep a GPU busy: 8 for each of an H100's 132 multiprocessors
LAUNCH_CELLS = 1 << 36  # joined cells per launch, and between two checks of the deadline: 0.1 s at the rate of an H200

# Tables that exceed the GPU's memory. Benchmark: benchmarks.elimination.streaming.
MAX_CHUNK_ENTRIES = 1 << 29  # entries of a chunk, and of one copy of the shared inputs: some hundredths of a second
PINNING_SECONDS_PER_BYTE = 4e-10  # seconds per byte for page-locking host memory, which cannot be interrupted
