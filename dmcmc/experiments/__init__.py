"""Sweeps: grids over configurations, seeds, methods and peers; every run a line of JSON; limits, failures, resuming."""
