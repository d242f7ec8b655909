"""What several formats share: words and numbers of a text, entries of tables, listed factors, observations."""
