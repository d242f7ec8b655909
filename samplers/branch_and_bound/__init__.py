"""Depth-first branch and bound with soft arc consistency: a search engine that needs no other package."""
