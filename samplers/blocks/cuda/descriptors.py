"""Layout of a block move's descriptor, an array of int64 words from which the GPU kernel knows how to redraw the block.

The redraw is a bucket elimination: the factors are conditioned on the variables outside the block and written to the
*arena*, a workspace of tables. Then each bucket joins its input tables and sends a message, a table over its axes.
All offsets in a descriptor are relative to its first word. ``descriptor_kernels`` writes descriptors,
``block_gibbs_kernels`` reads them.

A descriptor begins with SIZE (variables of the block) and GIVEN (factors that have a variable in the block). From
RECORDS on follow the offsets of the GIVEN factor records and of the SIZE bucket records.

A factor record: DATA, the table's offset in the data of all factors; TO, the conditioned table's offset in the arena;
ENTRIES, its number of entries there; OUTSIDE and INSIDE, the number of variables outside and inside the block. From
FACTOR on follow (variable, stride) per variable outside and (variable, domain size, stride) per variable inside; the
last of these is the last axis in the arena.

A bucket record: VARIABLE and its domain size DOMAIN; JOINED, the joined table's offset in the arena, and CELLS, its
number of entries; MESSAGE, the message's offset in the arena; INPUTS, the number of input tables; AXES, the number of
variables of the message. From BUCKET on follow (variable, domain size) per axis, then per input its offset in the
arena, its stride of the bucket's variable and its strides of the axes (0 for an axis that it does not have). The joined
table has the message's axes, and the bucket's variable last.
"""

SIZE, GIVEN, RECORDS = range(3)
DATA, TO, ENTRIES, OUTSIDE, INSIDE, FACTOR = range(6)  # factor record; FACTOR: offset of its pairs
VARIABLE, DOMAIN, JOINED, CELLS, MESSAGE, INPUTS, AXES, BUCKET = range(8)  # bucket record; BUCKET: offset of its axes
