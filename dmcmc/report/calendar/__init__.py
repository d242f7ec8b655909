"""A calendar's answer: who meets when, what did not fit and why, as a table, a web page and iCalendar files."""
