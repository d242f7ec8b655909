"""DCOP algorithms with one variable per agent: complete and local search, inference, message passing, sampling.

They run on the same problem as agents that exchange messages, and the runtime counts these. Other distributions
add algorithms through the entry-point group ``dmcmc.algorithms`` (see :mod:`dmcmc.algorithms.registry`).
"""
