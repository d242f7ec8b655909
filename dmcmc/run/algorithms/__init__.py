"""Runs of any algorithm: this project's own way, or one of :mod:`dmcmc.algorithms`, with the same results."""
