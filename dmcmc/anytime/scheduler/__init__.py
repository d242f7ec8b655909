"""Divide the running time over the improvers: each one proposes work, and rank 0 allocates every time slice."""
