"""Constants of the division into agents and of the steps of DPOP: unit, reason, and the benchmark that set each one."""

from dmcmc.inference.orders.tuning import MAX_RULE_AGENTS

# Division of a problem into agents. Not measured by a benchmark.
SIZE_TOLERANCE = 0.15  # largest relative excess of a part over an equal share of the variables
MAX_PART_RATIO = 1.5  # largest part that a narrow cut may make, relative to an equal share of the variables
MAX_MOVE_PASSES = 8  # passes over all variables that move them between parts
MAX_COSTED_DEGREES = 200_000  # sum of degrees; on a larger graph the cost of divisions is not computed
ACCEPTED_CELLS = 1e9  # any division with no more joined cells is accepted: about a second
ACCEPTED_RATIO = 4.0  # a division is accepted up to this multiple of the undivided problem's joined cells

# Pseudo-trees. Benchmark: benchmarks.many_agents.
MAX_ROOTS = 32  # depth-first trees tried per component
MAX_TREE_NODES = 10 * MAX_RULE_AGENTS  # nodes of the depth-first trees together, if there are more than two

# Memory. Benchmark: benchmarks.solving.budgets.
WORK_SHARE = 0.75  # of the budget that the problem's tables leave
STEPS_SHARE = 2 / 3  # of the work share, for the UTIL steps that stay in memory
