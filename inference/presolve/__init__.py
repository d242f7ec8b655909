"""Presolve: remove values, variables and factors that cannot matter, without loss of the optimum."""
