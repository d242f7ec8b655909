"""Sparse tables (CUBE calls them incomplete): eliminations that store only rows that are allowed and can be optimal."""
