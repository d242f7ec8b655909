"""Problems written by hand: the builder, with variables and labels by name, and its constraints."""
