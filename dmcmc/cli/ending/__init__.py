"""End the processes of a run, and deliver its result once; imported before anything slow."""
