"""Configurations: what the keys are (`settings`, `units`), reading YAML with the line of every key, Python keywords.

Gives `Settings` to everything that solves, and `Config`, which also says what, to the command line.
"""
