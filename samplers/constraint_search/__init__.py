"""Local search on global constraints: annealing with weights of violated constraints, and compound moves."""
