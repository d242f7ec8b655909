"""Constants of mini-buckets with moment matching. Benchmark: benchmarks.elimination.minibuckets."""

HEADROOM = 8  # least ratio of the range of the numbers to the sum of the problem's own entries: the rest is for shifts
MIN_STEPS_PER_BLOCK = 8  # steps per thread for which another block repays its atomic maximum
