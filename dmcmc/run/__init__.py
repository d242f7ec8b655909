"""The compilation of kernels."""
