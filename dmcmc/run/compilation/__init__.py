"""What a run compiles, or loads, before its clock starts: the first time only."""
