"""Branch and bound, depth first: our own search engine beside a run, with soft arc consistency for its bound."""
