"""Baseline DCOP algorithms with one variable per agent: MGM, MGM2, DSA, DGLS, Max-Sum, distributed Gibbs, DUCT, DPOP.

The algorithms run in synchronous cycles on the same problem and report the messages that they send. Other distributions
add algorithms through the entry-point group ``dmcmc.algorithms`` (see :mod:`dmcmc.algorithms.registry`).
"""
