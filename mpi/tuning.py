"""Constants of messages and ranks."""

# Waiting. Benchmark: benchmarks.ranks.
IMMEDIATE_POLLS = 20  # polls without a pause; more of them delay ranks that share cores with other work
LONGEST_PAUSE_SECONDS = 2.5e-4  # a message passes a waiting rank after half of it, and a poll takes 5 µs

# Messages. Benchmark: benchmarks.ranks.
MAX_INLINE_BYTES = 1 << 15  # of arrays that are sent with the header
MIN_SPARSE_ENTRIES = 64  # entries of a table; smaller ones are sent in dense form

# Placement. Benchmark: benchmarks.scaling_model.
# Subtrees are placed together, for the sake of fewer messages, if the busiest rank has at most this many times the work
# that it has in the balanced placement.
MAX_LOAD_RATIO = 1.1
