"""Block moves: a set of variables of small induced width is chosen anew at once, exactly, given all others."""
