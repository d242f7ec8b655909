"""Protocols of local solvers and samplers, and the error message for a sampler that does not compile."""
