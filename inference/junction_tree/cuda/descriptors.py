"""Layout of the int64 descriptors of a junction tree's messages for the GPU.

One launch computes several messages. Its launch table holds the number n of its messages (at MESSAGES), the
first block of each and the number of blocks (n + 1 values from FIRST_BLOCK on), and the positions of their
descriptors (n values).

A message's descriptor is a header of HEADER values, the sizes of the target's axes, the sizes of the
eliminated axes except the innermost, and a record for each joined table; the last record is the target's.
"""

MESSAGES, FIRST_BLOCK = range(2)
# The header. TABLE: number of the target; ENTRIES, AXES: its numbers of entries and axes; ELIMINATED: number of
# assignments of the eliminated variables; INNER, OUTER_AXES: size of the innermost eliminated axis, number of the other
# eliminated axes; TABLES: number of joined tables; PARTS, PART_AT: number of parts into which the eliminated
# assignments are divided, and position of their results in the workspace.
TABLE, ENTRIES, AXES, ELIMINATED, INNER, OUTER_AXES, TABLES, PARTS, PART_AT = range(9)
# For matrix products. HIGH, HIGH_AXES: entries and axes of the rows, whose axes come first; HIGH_TABLES, LOW_TABLES:
# number of tables that depend on rows and eliminated variables, and on columns and eliminated variables. The tables are
# in this order; those without eliminated variables are last.
HIGH, HIGH_AXES, HIGH_TABLES, LOW_TABLES = range(9, 13)
HEADER = 13  # length of the header
# A record. NUMBER: number of the table; AT: offset of its first entry; STEP: its stride of the innermost eliminated
# axis; STRIDES: its strides of the target's axes, then of the other eliminated axes.
NUMBER, AT, STEP, STRIDES = range(4)
