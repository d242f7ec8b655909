"""Plan a run: presolve and divide the problem, choose each agent's method, and decide how tables are combined."""
