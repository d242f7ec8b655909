"""Random problems with global constraints, and their degrees of violation by definition."""
