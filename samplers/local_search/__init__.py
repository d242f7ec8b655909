"""Local search over the whole assignment: a first one, one that no single move betters, and better ones in time."""
