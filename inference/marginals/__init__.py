"""Marginals and max-marginals of all variables given evidence, on the CPU or a GPU."""
