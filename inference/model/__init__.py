"""The graphical model: problems, factors and tables, and the numbers that they are computed in."""
