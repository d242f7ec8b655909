"""A step of making rows as words (int64) for the GPU.

A header, then for each dense table where it begins, the strides of the bucket's variable and of the one that is added,
and where its fields begin (tables + 1); then shift, mask and stride of each field; then shift, mask and place of the
fields that rows share with a partner.
"""

# What candidates are: vectors of a table to begin with, rows with each value of a variable, rows with their partners.
FIRST, EXTEND, JOIN = range(3)
# The header. X_SIZE: values of the bucket's variable; SIZE, BITS: values that each row is extended by, and the bits
# that are added to its key; the rest: how many there are, and where each list begins.
(
    KIND, X_SIZE, SIZE, BITS, EXACT, TABLES, AT, OF_X, OF_Y, FIELD_START, SHIFT, MASK, STRIDE, SHARED, SHARED_SHIFT,
    SHARED_MASK, SHARED_TO, HEADER,
) = range(18)  # fmt: skip
