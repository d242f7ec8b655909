"""Calendars of offices: generated teams, solving them, and planning anew after a change."""
