"""Solved calendars: when each meeting takes place, and why others do not, as a table, a web page or iCalendar files."""
