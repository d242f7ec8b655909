"""Constants of the choice of methods (``local.method: auto``).

Rates of a nominal machine, which are measured, stand in ``auto/rates.py`` and ``auto/effort.py``.
"""

# Benchmark: benchmarks.solving.auto_sweep, benchmarks.solving.auto_times.
CPU_CELLS = 4_000_000_000  # joined cells of an exact agent without a time budget: some seconds of work
GPU_CELLS = 4_000_000_000_000  # likewise, with a GPU
FIRST_TABLE_SECONDS = 5.0  # if not all tables are exact, first tables get no more than with a budget of this length
UNTIMED_ROW_SWEEPS = 3  # sweeps per row without a time budget
SECONDS_PER_AGENT = 3e-4  # seconds per agent, whatever its method
SLICING_FACTOR = 1.5  # factor of the time of bounds, which come in time slices
UNCERTAIN_FACTOR = 7.0  # the same if the graph has few triangles: the bounds may not close the gap
MAX_TIGHT_WIDTH = 12  # induced width up to which triangles close gaps
MIN_TRIANGLE_DENSITY = 0.1  # triangles per pair and unit of width that this takes
SPARSE_PAIRS = 3  # pairs per variable up to which mini-buckets are tried in addition to dual ascent
MAX_DEVIATION = 8.0  # factor between a measured and the nominal rate: larger deviations come from other load
PARALLEL_CELLS = 1 << 19  # joined cells of a bucket from which it is taken to run on all threads, or on the GPU
REFINED_CELLS = 1 << 15  # joined cells of a bucket from which a refined estimate is worth its time
