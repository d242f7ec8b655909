"""Marginals and max-marginals of all variables, with evidence that may change, on the CPU or a GPU."""
