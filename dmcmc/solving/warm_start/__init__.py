"""Warm starts: the assignment from which a run begins, from a mapping, a file, or the problem itself."""
