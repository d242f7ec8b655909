"""Meeting scheduling of others: the JSON of Timefold, and problem 46 of CSPLib."""
