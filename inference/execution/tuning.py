"""Constants of the choice of processors. Benchmark: benchmarks.solving.gpu_rates, on an H200 and one x86-64 core."""

import numpy as np

SECONDS_PER_CELL = 0.7e-9  # seconds per joined cell on one core
SECONDS_PER_BOUND_CELL = 1.2e-9  # seconds per joined cell of the mini-bucket bound, with moment matching, in 64 bits
CELLS_PER_SECOND = 3e8  # joined cells of a UTIL step, or entries of a clique, per second of one core
SECONDS_PER_SPARSE_ROW = 8e-7  # seconds per row of a sparse clique on one core, for all passes
SECONDS_PER_DRAW = 5e-8  # seconds per draw of a sampler on one core
GPU_ROUND_TRIP = 9e-4  # seconds for the copies to the GPU and back
GPU_START = 1.0  # seconds to open a GPU and load the kernels
MIN_BOUND_STARTS = 2.0  # times GPU_START: bounds that take one core less do not open a GPU; not measured
MIN_BOUND_ROUND_TRIPS = 10.0  # times GPU_ROUND_TRIP: shorter bounds do not use an open GPU; not measured
SECONDS_PER_WAVE = 7e-5  # seconds for the launches of a wave: buckets that do not depend on each other
SECONDS_PER_MATCHED_BUCKET = 2.5e-4  # seconds per mini-bucket with moment matching: launches, and copies to the host
GPU_THRESHOLDS = np.array([1 << 18, 1 << 15, 1 << 12, 0])  # candidates: joined cells from which a bucket goes to a GPU
STORED_SHARE = 1 / 2  # of a GPU's memory, for tables that stay there: sparse tables or factor vectors
