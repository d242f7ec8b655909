"""Answer questions about a problem by solving it repeatedly with changes."""
