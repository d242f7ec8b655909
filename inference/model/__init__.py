"""The graphical model: problems, factors, utility tables, and the arithmetic of utilities."""
