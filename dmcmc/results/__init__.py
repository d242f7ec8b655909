"""What a run returns: the assignment judged against the bound, metrics, provenance, JSON."""
