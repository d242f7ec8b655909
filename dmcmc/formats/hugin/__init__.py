"""Bayesian networks in Hugin's NET language (`.net`)."""
