"""Dual ascent: utilities are shifted between tables without changing their sum, until the sum of maxima is small."""
