"""Meeting scheduling as in problem 46 of CSPLib."""
