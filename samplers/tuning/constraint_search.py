"""Constants of the search among assignments by violated constraints, before and after its kernels are compiled."""

# Walks. Benchmark: benchmarks.constraints.random_problems, benchmarks.meetings.run.
FIRST_MOVES = 50_000  # moves of the first cycle, and of the first search between two checks of the deadline
MAX_FIRST_CALLS = 20  # of this number of moves, until the search for a feasible assignment gives up
# Ratio of the moves of a cycle, or of a repair, to those of the one before; of the weights of violated constraints; of
# their first weight to the largest change of the soft cost by one move.
CYCLE_GROWTH = 1.5
FOCUS = 0.5  # probability that a move starts from a violated constraint, or a repair looks only at violated cells
MAX_CHANGES = 256  # variables that one move changes
SAMPLED_MOVES = 2000  # moves by which the changes of the soft cost are measured
MIN_MEASURED_MOVES = 100  # moves from which a standard deviation or a mean is computed

# Temperatures of a cycle, and the moves at each. Benchmark: benchmarks.constraints.random_problems.
TEMPERATURES = 48  # temperatures of a cycle
SMALL_QUANTILE = 0.05  # of the changes of the soft cost, which decides the last temperature
LEAST_RATIO = 0.1  # last temperature, relative to that change; least moves at a temperature, relative to the most
MAX_SPREAD = 100.0  # limit on the standard deviation of the total, in temperatures

# Kinds of moves. Benchmark: benchmarks.constraints.random_problems.
WORK_PARTS = (0.4, 0.15, 0.15, 0.2, 0.1)  # of the work: single, pair, swap, ejection chain, rebuild
EVALUATION_WORK = 0.3  # work of evaluating one value, in changes of a value

# Repair by NumPy until kernels are compiled. Benchmark: benchmarks.solving.first_answer.
MAX_UNCOMPILED_VARIABLES = 2000  # variables up to which NumPy makes the first assignment, about 1 ms per variable
MAX_COMBINATIONS = 1 << 16  # combinations of values of two variables that are examined at once
MAX_CANDIDATES = 4  # units of a violated constraint that are examined before one of them changes
SIDEWAYS_PROBABILITY = 0.3  # of a change that neither gains nor loses, where no change of what is violated gains
NOISE = 0.02  # probability of a random change of a violated constraint (Selman, Kautz and Cohen, AAAI 1994)
FIRST_STEPS = 300  # steps of the first repair, besides two per unit
