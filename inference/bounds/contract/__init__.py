"""What a provider of bounds promises, and what is asked of it."""
