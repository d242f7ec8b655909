"""Monitoring of a run: progress reports, saved incumbents, and requests to end early."""
