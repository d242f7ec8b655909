"""Layout of the int64 descriptors that launches of chains pass to GPU kernels: agents' headers and launch parts.

One launch runs the chains of many rows of several agents. A row is an assignment of the agent's boundary variables (its
interface); several chains, the runs, sample its hidden variables. An agent's variables are numbered with the hidden
ones first.

Headers are (agents, HEADER_SIZE) int64 and parts are (parts, PART_SIZE) int64; the constants name their columns. Names
ending in ``_AT`` are offsets, in the array of int32 (``ints``) of the batch unless stated otherwise. Names ending in
``_BEFORE`` count what belongs to the agents before.
"""

# Columns of an agent's header.
(
    TABLE_AT,  # offset of the agent's columns: in ``ModelBatch.table``, or in ``JointBatch.data``
    VARIABLES,  # number of variables, hidden and interface
    HIDDEN,  # number of hidden variables
    DOMAINS_AT,  # (variables,): domain sizes
    VARIABLE_STARTS_AT,  # (hidden + 1): first words of variables; for joint proposals (hidden): offsets of jump tables
    COUNTS_AT,  # (hidden, 2): number of columns with one other variable, and of all columns
    ROWS,  # number of rows: the product of the domain sizes of the interface variables
    ROWS_BEFORE,  # number of rows of earlier agents
    CHOICES_AT,  # for each interface variable, the number of earlier ones with more than one value
    KEY_0,  # first key word of the random numbers of the agent's chains
    KEY_1,  # second key word
    VIOLATION_SHIFT,  # k, if a forbidden entry adds −2^k to the integer utility of a state; 0 if no entry is forbidden
    INTERFACE_BEFORE,  # number of interface variables of earlier agents
    WIDE_AT,  # lists of the other variables of columns that have several
    INTERFACE_CHOICES,  # number of interface variables with more than one value
    FACTORS_AT,  # (factors, 2): record and variable of each factor; for joint proposals (4, factors)
    FACTORS,  # number of factors with a hidden variable
    STATES_BEFORE,  # values stored for the rows of earlier agents
    RUNS,  # chains per row
) = range(19)
HEADER_SIZE = 19  # columns of a header

# Columns of a part of a launch: consecutive rows of one agent, in consecutive thread blocks.
# The columns are: index of the agent's header; number of the first row; number of rows; number of the first block.
AGENT, FIRST_ROW, PART_ROWS, FIRST_BLOCK = range(4)
PART_SIZE = 4  # columns of a part
