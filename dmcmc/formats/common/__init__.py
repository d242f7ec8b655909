"""Code that several formats share: tokens and numbers, table entries, sparse factors, observations."""
