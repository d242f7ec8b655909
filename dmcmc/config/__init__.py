"""Configurations: the keys (`settings`, `units`), reading YAML with the line of every key, and Python keywords.

`Settings` say how a problem is solved; `Config` adds the problem, for the command line.
"""
