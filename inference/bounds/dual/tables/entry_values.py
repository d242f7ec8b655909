"""What an entry of a table is: live within limits, or dead."""

LIMIT = 1 << 24  # what a live entry may become through shifts; a kernel that sees a larger one stops
DEAD = -(1 << 29)  # a forbidden or removed entry: three add up without wrapping
THRESHOLD = -(1 << 28)  # a sum below this has a dead entry in it: others add at most 10 LIMIT, and 12 LIMIT are less
