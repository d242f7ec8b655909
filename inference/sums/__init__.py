"""Sums over all assignments: partition functions and solution counts."""
