"""toulbar2 (``pytoulbar2``, extra ``search``) as a search engine in a separate process; dmcmc evaluates its answers."""
