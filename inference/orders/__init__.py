"""Elimination orders: greedy rules, depth-first trees, search, windows reordered optimally."""
