"""Naive solutions of calendars."""
