"""Incomplete tables on an NVIDIA GPU: rows are counted, found by prefix sums, judged and written, one thread each."""
