"""Private runs: each rank knows only its own agents' parts of the problem, and exchanges only what neighbours share."""
