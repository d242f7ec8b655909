"""Calendars (YAML with the key ``calendar``): who meets whom for how long, who is busy, and what everybody prefers."""
