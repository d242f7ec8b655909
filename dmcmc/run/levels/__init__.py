"""Solve the levels of an objective one after the other."""
