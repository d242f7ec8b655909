"""Plan calendars: solve them, keep what was booked, and explain why a calendar is impossible."""
