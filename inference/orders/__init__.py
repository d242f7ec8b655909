"""Elimination orders: greedy rules, depth-first trees, randomised search, and exact reordering of parts."""
