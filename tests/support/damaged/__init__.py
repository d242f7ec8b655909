"""Damaged files, to test that readers give one line."""
