"""UTIL and VALUE phases in slices, and the division of slices among ranks."""
