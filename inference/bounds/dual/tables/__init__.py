"""Vectorised kernels over int32 tables of the dual ascent: sums, maxima, messages, matrix products and transposes."""
