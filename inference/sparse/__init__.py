"""Incomplete tables: elimination that stores only the rows that are possible and can still beat the incumbent."""
