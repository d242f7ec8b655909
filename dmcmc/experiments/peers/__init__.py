"""Peers: other solvers that experiments compare with, each in a separate process; dmcmc evaluates their answers."""
