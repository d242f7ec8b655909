"""Constants of the samplers of an agent's rows: schedules, passes, and what an exact elimination retains."""

# Temperatures. Benchmark: benchmarks.sampling.quality.
ANNEALING_RANGE = (0.35, 0.2)  # first and last temperature, in units of the model's spread; descent does the rest
# Desired number of rounds that pass states on between rows. Each has at least half as many trials; half as many rounds
# repair states, each with as many trials as all other rounds together.
WARM_ROUNDS = 8
REPAIR_END = 0.15  # last temperature of a repair, in units of the penalty: violations do not come back
DESCENT_SWEEPS = 10  # most sweeps at temperature 0 at the end of a round

# Passes. Benchmark: benchmarks.sampling.quality_over_time.
MIN_SAMPLES = 8  # trials per chain in a shortened or later pass, half of those in a first pass on a GPU; timed trials
SAMPLES_PER_RUN = 64  # trials per chain, below which a pass has fewer runs instead
MAX_SAMPLES = 1000  # trials per chain in a later pass
TASK_DRAWS = 1 << 14  # single-variable draws of a task: about a millisecond of one core
ROW_CHOICE_TRIALS = 30  # trials per chain of the short sampling that chooses the rows of a large agent
RECORDED_TRIALS = 10_000  # trials of the chains that are run again for statistics

# Passes on a GPU. Benchmark: benchmarks.sampling.gpu_samplers.
MAX_PASS_GROWTH = 16.0  # most work of a pass, in that of the one before
MAX_PASS_SECONDS = 1.5  # seconds of a pass, which cannot be interrupted

# Block moves in an agent. Benchmark: benchmarks.sampling.blocks.
CELLS_PER_DRAW = 100  # table cells that count as one single-variable draw of the requested work
# Single-variable draws are frozen, so that block moves replace them, if few of them change a value at this temperature,
# in units of the typical spread: chains spend much of their time there.
FROZEN_TEMPERATURE = 0.2
MAX_FROZEN_MOBILITY = 0.02  # mean share of these draws that change a value

# Exact elimination. Benchmark: benchmarks.elimination.slices, benchmarks.solving.return_to_exact.
MAX_RETAINED_BYTES = 1 << 28  # of an agent's tables that are retained until VALUE asks for hidden values
MIN_RETAINED_BYTES = 1 << 16  # of an agent's tables that are always retained
# Share of the cells of an agent that the largest part may have on any rank; also the cells of an undivided elimination
# in those of slices that fit a GPU, at least: streaming tables through a GPU is slower.
MAX_DIVIDED_SHARE = 0.8
MAX_OVERRUN = 3.0  # factor of its proportional part of the time that one agent may take

# Bounds of rows on several ranks. Benchmark: benchmarks.ranks.
ENTRIES_PER_SENT = 8  # entries processed in the time of sending one
