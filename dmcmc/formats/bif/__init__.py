"""Bayesian networks in the Bayesian Interchange Format (`.bif`)."""
