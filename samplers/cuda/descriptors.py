"""What launches of chains tell kernels, as words with names: a header for each agent, and the parts of a launch."""

# Of an agent's header. Places are in ``Batch.ints``; what is before is that of the agents before.
(
    TABLE,  # first word of its part of ``Batch.table``
    VARIABLES,
    HIDDEN,
    DOMAINS_AT,
    STARTS_AT,  # first words of variables
    COUNTS_AT,  # (columns with one other variable, all columns) of each variable
    ROWS,
    ROWS_BEFORE,
    CHOICES_AT,  # how many interface variables before each have a choice
    KEY_0,
    KEY_1,
    VIOLATION,
    INTERFACE_BEFORE,
    WIDE_AT,  # columns with several other variables
    CHOICES,  # interface variables that have a choice
    FACTORS_AT,  # (record, variable) of each factor
    FACTORS,
    STATES_BEFORE,  # values that are kept of rows
    RUNS,
) = range(19)
HEADER = 19  # words of it

# Of a part of a launch: rows of one agent, in neighbouring blocks.
AGENT, FIRST_ROW, PART_ROWS, FIRST_BLOCK = range(4)
PART = 4  # words of it
