"""Small tables of whole numbers, some of them dead, several entries at a time: products, maxima, triangles' shares."""
