"""MaxSAT (``python-sat``, extra ``search``) as a search engine in a separate process; dmcmc evaluates its answers."""
