"""Configurations: what the keys are (`schema`), reading YAML with the line of every key, what is not available yet.

Gives `Config` to everything above the solvers.
"""
