"""Configurations: the keys (`settings`), what makes and checks them, and the problem that a file names.

`Settings` say how a problem is solved; `Config` adds the problem, for the command line.
"""
