"""Experiments: runs over grids of configurations, seeds, methods and other solvers, with a journal of all results."""
