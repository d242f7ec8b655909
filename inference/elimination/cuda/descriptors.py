"""Buckets as words (int64) for the GPU: one upload serves all eliminations of a batch.

A bucket's words are a header, the sizes of the axes of h and of l, and a record for each table: those of h, those of l,
those that vary with both. :mod:`dmcmc.inference.elimination.cuda.descriptor_kernels` writes them, and the picture of h
and l is in :mod:`dmcmc.inference.elimination.cuda.join_kernels`.
"""

# A bucket's header: sizes, and where its message begins; how many tables are of each kind; where its parts of the
# scratch ``sums`` (S and B) and ``start`` begin; tiles that a block joins side by side. Sizes of the axes follow.
DOMAIN, HIGH_AXES, LOW_AXES, ROWS, WIDTH, MESSAGE = range(6)
HIGH_TABLES, LOW_TABLES, BOTH_TABLES = range(6, 9)
HIGH_SUMS, LOW_SUMS, ROW_STARTS, COLUMN_STARTS, TILES = range(9, 14)
HEADER = 14
# A table's record: where it begins, its stride of x, and then those of all axes.
OFFSET, X_STRIDE, STRIDES = range(3)
# A launch's table: the number n of its buckets, the first block of each and the number of blocks (n + 1), the places of
# their descriptions (n). Launches of max-marginals have the places of what they find behind that (n).
BUCKETS, FIRST_BLOCK, AFTER = range(3)
# A program to look witnesses up: lengths of its arrays, what is added to every offset, then the arrays.
(
    DOMAINS, SCOPE_STARTS, SCOPES, PLACES, VARIABLES, INPUT_STARTS, INPUTS, SHIFT, ARRAYS,
) = range(9)  # fmt: skip
# A message to be measured: where it begins, its entries, the place of what is found.
BEGIN, ENTRIES, SLOT, SPAN = range(4)
