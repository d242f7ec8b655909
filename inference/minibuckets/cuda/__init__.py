"""Moment matching on an NVIDIA GPU."""
