"""Constants of the scheduler, each with its unit and its reason.

Values marked *simulated* were chosen by ``python -m benchmarks.scheduler_simulation``, which replays recorded
gains; the others are conventions that no measurement contradicts.
"""

# Seconds. Shortest time slice: a combination of small tables takes some hundredths of a second. As much correctly
# estimated work also precedes the first correction of an estimated cost.
MIN_SLICE_SECONDS = 0.25
# Part of the whole time. Longest slice while work that continues where it stopped still gains: the end of its gains is
# then noticed soon. Work that starts anew in each slice is better off with slices that double.
RESUMABLE_SLICE_PART = 0.1
AWAITED_SLICE_PART = 0.025  # part of the whole time. Longest slice while other work waits for the outcome
WINDOW_SLICES = 1  # slices. Sliding window over which gains are compared (simulated)
# Part of the best expected gain that an improver without gains in its window keeps, divided by the number of slices
# without a gain; also the part of the gap that work is taken to gain at best where nothing is left for it (simulated).
EXPLORATION = 0.05
# Part of the gap per slice. An improver that gains less counts as one that gains nothing.
NEGLIGIBLE_PART = 0.003
# Part of a slice. Gains in a smaller share are extrapolated as if it were this one, since they may be luck; work that
# starts anew saves up its seconds until it has this share, or its minimum quantum.
MIN_SHARE = 0.1
# Part of the remaining time that work with an estimated cost may take, because estimates are uncertain. A slice that
# takes more than that takes all of it.
MAX_FINAL_PART = 0.8
MAX_COST_CORRECTION = 8.0  # factor. Largest correction of an estimated cost, up or down
# Seconds, and multiple of the seconds until the incumbent was found: a search that is the only work left ends after
# this time without a better assignment, and after this multiple of it while a bound shows an open gap.
PATIENCE_FACTOR = 10.0
