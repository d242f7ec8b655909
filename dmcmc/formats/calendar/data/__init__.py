"""Data of a calendar: its time grid, rules for times, people, rooms and meetings."""
