"""Compile the kernels of a run, and load GPU code, while it works."""
