"""What a run plans: the problem as it divides it, what each agent does, and how their tables are combined."""
