"""Layout of the descriptors that launches of chains pass to kernels: a header per agent, and the parts of a launch.

Headers are (agents, HEADER_SIZE) int64 and parts are (parts, PART_SIZE) int64; the constants name their columns. Names
ending in ``_AT`` are offsets, in the array of int32 (``ints``) of the batch unless stated otherwise. Names ending in
``_BEFORE`` count what belongs to the agents before.
"""

# Columns of an agent's header.
(
    TABLE_AT,  # offset of the agent's columns: in ``ModelBatch.table``, or in ``JointBatch.data``
    VARIABLES,
    HIDDEN,
    DOMAINS_AT,
    VARIABLE_STARTS_AT,  # (hidden + 1) first words of variables; for joint proposals (hidden) offsets of jump tables
    COUNTS_AT,  # (hidden, 2): number of columns with one other variable, and of all columns
    ROWS,
    ROWS_BEFORE,
    CHOICES_AT,  # for each interface variable, the number of earlier ones with more than one value
    KEY_0,
    KEY_1,
    VIOLATION,
    INTERFACE_BEFORE,
    WIDE_AT,  # lists of the other variables of columns that have several
    INTERFACE_CHOICES,  # number of interface variables with more than one value
    FACTORS_AT,  # (factors, 2): record and variable of each factor; for joint proposals (4, factors)
    FACTORS,
    STATES_BEFORE,  # values stored for the rows of earlier agents
    RUNS,
) = range(19)
HEADER_SIZE = 19  # columns of a header

# Columns of a part of a launch: rows of one agent, in consecutive blocks.
AGENT, FIRST_ROW, PART_ROWS, FIRST_BLOCK = range(4)
PART_SIZE = 4  # columns of a part
