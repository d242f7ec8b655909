"""Layout of the int64 descriptors of buckets that GPU kernels read: one upload serves all eliminations of a batch.

The constants are positions within a descriptor. A bucket's descriptor is a header, the sizes of the axes of h and of l,
and a record for each table: first the tables that depend on h only, then on l only, then on both. x is the variable
that the bucket eliminates; h and l are the leading and trailing variables of its separator, the variables of its
message. S[x, h] and B[x, l] are the sums of the tables that depend on h only and on l only. See
:mod:`dmcmc.inference.elimination.cuda.join_kernels`.
:mod:`dmcmc.inference.elimination.cuda.descriptor_kernels` writes the descriptors.
"""

# A bucket's header: domain size of x, axes of h and of l, rows (assignments of h), width (assignments of l), offset of
# the message; number of tables of each kind; offsets of its parts of the workspaces ``sums`` (S and B) and ``start``
# (rows and columns); tiles that a block joins side by side. The sizes of the axes follow the header.
DOMAIN, HIGH_AXES, LOW_AXES, ROWS, WIDTH, MESSAGE = range(6)
HIGH_TABLES, LOW_TABLES, BOTH_TABLES = range(6, 9)
HIGH_SUMS, LOW_SUMS, ROW_STARTS, COLUMN_STARTS, TILES = range(9, 14)
HEADER = 14
# A table's record: its offset in the arena, its stride of x, and its strides of all axes.
OFFSET, X_STRIDE, STRIDES = range(3)
# A launch's table: number n of its buckets, first block of each bucket and the number of blocks (n + 1 values), then
# the positions of the buckets' descriptors (n values). Launches of max-marginals append the positions of their results
# (n values).
BUCKETS, FIRST_BLOCK, AFTER = range(3)
# A program for looking maximising values up (``choose_kernel``): lengths of the seven arrays of a ``BucketProgram``
# that it reads, a shift that is added to every offset, then the arrays.
(
    DOMAINS, SCOPE_STARTS, SCOPES, OFFSETS, VARIABLES, INPUT_STARTS, INPUTS, SHIFT, ARRAYS,
) = range(9)  # fmt: skip
# A message whose largest entry is found: its offset, its number of entries, the position of the result.
BEGIN, ENTRIES, RESULT, SPAN = range(4)
