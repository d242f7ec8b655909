"""Agents that are lifted, and a naive twin of what lifts them on a GPU."""
