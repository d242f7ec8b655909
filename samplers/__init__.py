"""Local solvers: turn an agent's subproblem into a table, exactly or by Markov chain Monte Carlo."""
