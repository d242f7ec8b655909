"""Tables that stay on a GPU between eliminations, and the operations on them."""
