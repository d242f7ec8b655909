"""Sparse tables on an NVIDIA GPU: count, locate, check and write candidates, one per thread."""
