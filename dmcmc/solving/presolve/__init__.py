"""Presolve a problem before a run if that is worthwhile, and restore the answer to the original problem."""
