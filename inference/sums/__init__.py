"""Sums over all assignments: partition functions, numbers of solutions."""
