"""Dual ascent: reparametrise an agent's tables by messages until the sum of their maxima, an upper bound, is small."""
