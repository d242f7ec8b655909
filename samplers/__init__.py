"""How one agent's subproblem becomes a table: exactly, or by Markov chain Monte Carlo."""
