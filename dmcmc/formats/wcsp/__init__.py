"""Weighted constraint satisfaction problems (`.wcsp`)."""
