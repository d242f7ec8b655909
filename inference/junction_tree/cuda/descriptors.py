"""Messages of a junction tree as words (int64) for the GPU.

A launch's table: how many messages it makes, the first block of each and the number of blocks (n + 1), the places of
their descriptions (n). A description: a header, the sizes of the axes of what is made, the sizes of the axes that are
eliminated but the innermost, and a record for each table, the last for what is made.
"""

JOBS, FIRST_BLOCK = range(2)
# TABLE: what is made; ENTRIES of it that are, over so many axes; assignments that are eliminated, of the innermost axis
# and of the others (so many axes); tables that are joined; parts that the eliminated are cut into, and where those go.
TABLE, ENTRIES, AXES, ELIMINATED, INNER, OUTER_AXES, TABLES, PARTS, PART_AT = range(9)
# Of matrix products: entries and axes of the rows, which come first; tables that vary with rows, or with columns, and
# with what is eliminated; the tables follow each other so, and those of which nothing is eliminated are last.
HIGH, HIGH_AXES, HIGH_TABLES, LOW_TABLES = range(9, 13)
HEADER = 13
# A record: which table, where its first entry is, the stride of the innermost axis, and those of all other axes.
NUMBER, AT, STEP, STRIDES = range(4)
