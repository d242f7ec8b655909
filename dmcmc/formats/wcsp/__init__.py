"""Weighted CSPs (`.wcsp`)."""
