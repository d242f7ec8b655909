"""Exact and bounded inference in graphical models: elimination orders, pseudo-trees, bucket elimination, DPOP's steps.

Nothing in this package communicates: it does not import MPI.
"""
