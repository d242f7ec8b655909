"""Helpers for tests of junction trees."""
