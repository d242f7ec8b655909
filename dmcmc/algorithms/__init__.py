"""DCOP algorithms with one variable an agent, to compare with: MGM, MGM2, DSA, DGLS, Max-Sum, DUCT, DPOP and others.

They act in synchronous cycles on the same problem, and say what messages they send. Others are found by the entry-point
group ``dmcmc.algorithms`` (:mod:`dmcmc.algorithms.registry`).
"""
