"""Timefold's meeting scheduling: meetings with attendees, time grains and rooms, in its JSON."""
