"""Helpers for tests of kernels."""
