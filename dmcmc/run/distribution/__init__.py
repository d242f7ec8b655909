"""What one rank knows of a problem: the parts of its own agents, which rank 0 scatters."""
