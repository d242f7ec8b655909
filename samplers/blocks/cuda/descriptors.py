"""What the kernel reads of a block move: records in one array of int64, places counted from the move's first word.

A move is SIZE, GIVEN, then the places of the records of its GIVEN factors, and of its SIZE buckets.

A factor's record: where its table begins in the data and in the arena, the entries of the latter, how many variables
are outside and inside of the block, then (variable, stride) of those outside, (variable, domain, stride) of those
inside; the last of them is the last axis in the arena.

A bucket's record: its variable and that one's domain, where the joined table begins in the arena and its cells, where
the message begins, how many inputs and how many variables the message has, then (variable, domain) of those, and for
each input where it begins, its stride of the bucket's variable and of each of the message's. The joined table has the
message's axes, and the bucket's variable last.
"""

SIZE, GIVEN, RECORDS = range(3)
DATA, TO, ENTRIES, OUTSIDE, INSIDE, FACTOR = range(6)  # of a factor; FACTOR is where its pairs begin
VARIABLE, DOMAIN, JOINED, CELLS, MESSAGE, INPUTS, AXES, BUCKET = range(8)  # of a bucket; BUCKET where its axes begin
