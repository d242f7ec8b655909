"""Bayesian networks in the interchange format (`.bif`)."""
