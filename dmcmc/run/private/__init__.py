"""Runs in which each rank knows its own agents' parts of the problem only: what crosses is what neighbours share."""
