"""CP-SAT (``ortools``, extra ``search``) as a search engine in a separate process; dmcmc evaluates its answers."""
