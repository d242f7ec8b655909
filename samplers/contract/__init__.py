"""What a local solver, and the smaller sampler, promise; what users are told of one that does not compile."""
