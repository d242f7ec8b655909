"""One run: set-up, first tables, cycles of UTIL and VALUE, improving what can still matter, and the result."""
