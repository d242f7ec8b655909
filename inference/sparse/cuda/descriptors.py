"""Layout of the int64 descriptor of one step of making rows on the GPU.

A header is followed by lists: for each dense table its offset, its strides of the bucket's variable and of the added
variable, and the index of its first field (tables + 1 values); then shift, mask and stride of each field; then shift,
mask and target shift of the fields that rows share with a partner.
"""

# The candidates: vectors of the first table, rows with each value of a variable, or rows with their partners.
FIRST, EXTEND, JOIN = range(3)
# The header. X_SIZE: domain size of the bucket's variable; SIZE, BITS: number of values that extend each row, and bits
# added to its key; EXACT, TABLES, SHARED: numbers of exact tables, of all tables, of shared fields; the rest: position
# of each list.
(
    KIND, X_SIZE, SIZE, BITS, EXACT, TABLES, AT, OF_X, OF_Y, FIELD_START, SHIFT, MASK, STRIDE, SHARED, SHARED_SHIFT,
    SHARED_MASK, SHARED_TO, HEADER,
) = range(18)  # fmt: skip
