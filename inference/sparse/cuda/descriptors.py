"""Layout of the int64 descriptor of one step of making rows on the GPU.

The header has the entries KIND to SHARED_TO. The names of lists stand for the position of the list in the descriptor:

* per dense table: OFFSET (its offset), X_STRIDE and Y_STRIDE (its strides of the bucket's variable x and of the added
  variable y; 0 if it does not depend on it), FIELD_START (index of its first field; tables + 1 values);
* per field, that is, per pair of a dense table and a variable in the row's key: SHIFT and MASK of the variable in the
  key, STRIDE of the table;
* per variable that rows share with a join partner: SHARED_SHIFT and SHARED_MASK in the row's key, SHARED_TO: shift in
  the packed shared values.
"""

# Values of KIND: the candidates are vectors of the first table, rows with each value of a new variable, or rows with
# their partners.
FIRST, EXTEND, JOIN = range(3)
# The header. X_SIZE: domain size of the bucket's variable; SIZE: number of values that extend each row; BITS: bits that
# are added to its key; EXACT: number of tables that are added; TABLES: number of all tables (the others are bounds);
# SHARED: number of shared variables; HEADER: length of the header; other names: position of each list.
(
    KIND, X_SIZE, SIZE, BITS, EXACT, TABLES, OFFSET, X_STRIDE, Y_STRIDE, FIELD_START, SHIFT, MASK, STRIDE, SHARED,
    SHARED_SHIFT, SHARED_MASK, SHARED_TO, HEADER,
) = range(18)  # fmt: skip
