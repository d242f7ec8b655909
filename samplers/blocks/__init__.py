"""Block moves: jointly reassign a set of variables of small induced width by exact elimination, all others fixed."""
