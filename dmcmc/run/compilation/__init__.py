"""Compile kernels, and load GPU code, before the clock of a run starts."""
