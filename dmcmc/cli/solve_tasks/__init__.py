"""Tasks of ``dmcmc solve`` besides finding one assignment: their options and their work."""
