"""Layout of a block move's descriptor, int64 words; offsets in it count from the move's first word.

A descriptor begins with SIZE (variables of the block) and GIVEN (factors that touch it). From RECORDS on follow the
offsets of the GIVEN factor records and of the SIZE bucket records.

A factor record: DATA, the table's offset in the data; TO, its offset in the arena; ENTRIES, its entries in the arena;
OUTSIDE and INSIDE, the number of variables outside and inside the block. From FACTOR on follow (variable, stride) per
variable outside and (variable, domain, stride) per variable inside; the last of these is the last axis in the arena.

A bucket record: VARIABLE and its DOMAIN; JOINED, the joined table's offset in the arena, and CELLS, its entries;
MESSAGE, the message's offset; INPUTS, the number of input tables; AXES, the number of variables of the message. From
BUCKET on follow (variable, domain) per axis, then per input its offset, its stride of the bucket's variable and its
strides of the axes. The joined table has the message's axes, and the bucket's variable last.
"""

SIZE, GIVEN, RECORDS = range(3)
DATA, TO, ENTRIES, OUTSIDE, INSIDE, FACTOR = range(6)  # factor record; FACTOR: offset of its pairs
VARIABLE, DOMAIN, JOINED, CELLS, MESSAGE, INPUTS, AXES, BUCKET = range(8)  # bucket record; BUCKET: offset of its axes
