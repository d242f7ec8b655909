"""Helpers for tests of how the code is divided."""
