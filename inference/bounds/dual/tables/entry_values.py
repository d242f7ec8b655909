"""Values that an int32 table entry of the dual ascent can have: an allowed number in a bounded range, or forbidden.

An allowed entry lies between ``-MAX_MAGNITUDE`` and ``MAX_MAGNITUDE``. A forbidden entry stands for minus infinity: a
combination of values that a hard constraint excludes or that pruning has removed.
"""

MAX_MAGNITUDE = 1 << 24  # largest |allowed entry|; a kernel that finds a larger one stops
FORBIDDEN = -(1 << 29)  # a forbidden entry (minus infinity); the sum of three does not overflow int32
# A sum below this contains a forbidden entry. A forbidden entry plus up to 10 allowed ones is at most -22 * 2^24, which
# is below it; the sum of up to 12 allowed entries is at least -12 * 2^24, which is not (-2^28 = -16 * 2^24).
FORBIDDEN_BELOW = -(1 << 28)
