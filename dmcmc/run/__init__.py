"""Solve a problem: setup, initial tables, UTIL and VALUE cycles, improvement of tables and bounds, and the result."""
