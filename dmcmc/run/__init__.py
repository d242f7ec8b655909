"""Entries of a solve, and what calls several solves: alternatives, values, changed tables, warm starts, compilation."""
