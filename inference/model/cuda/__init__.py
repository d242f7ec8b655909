"""Tables that stay on a GPU between eliminations, and what is done to them there."""
