"""What one rank knows of a problem: its own agents' parts, and how rank 0 deals them out."""
