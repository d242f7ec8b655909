"""Global constraints as factors, hard or with a cost per unit of violation; one constraint per file."""
