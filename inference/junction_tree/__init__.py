"""Junction trees: what every variable's values are worth, or how probable they are, by messages up and down a tree."""
