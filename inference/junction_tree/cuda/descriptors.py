"""Layout of the int64 descriptors of a junction tree's messages for the GPU.

A launch's table holds the number n of its messages, the first block of each and the number of blocks (n + 1 values),
and the positions of their descriptors (n values). A message's descriptor is a header, the sizes of the target's axes,
the sizes of the eliminated axes except the innermost, and a record for each table; the last record is the target's.
"""

MESSAGES, FIRST_BLOCK = range(2)
# TABLE: number of the target; ENTRIES, AXES: its entries and axes; ELIMINATED: assignments of the eliminated variables;
# INNER, OUTER_AXES: size of the innermost eliminated axis, number of the others; TABLES: joined tables; PARTS, PART_AT:
# parts into which the eliminated assignments are divided, and the position of their results.
TABLE, ENTRIES, AXES, ELIMINATED, INNER, OUTER_AXES, TABLES, PARTS, PART_AT = range(9)
# For matrix products: entries and axes of the rows, which come first; numbers of tables that depend on rows, or on
# columns, and on eliminated variables. The tables are in this order; those without eliminated variables are last.
HIGH, HIGH_AXES, HIGH_TABLES, LOW_TABLES = range(9, 13)
HEADER = 13
# A record: number of the table, offset of its first entry, stride of the innermost eliminated axis and of all other
# axes.
NUMBER, AT, STEP, STRIDES = range(4)
