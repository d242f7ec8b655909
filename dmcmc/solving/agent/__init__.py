"""Build one agent's tables: lower bounds by sampling, upper bounds, and the pruning of rows that cannot matter."""
