"""Tools for assistants that plan calendars, by the Model Context Protocol over standard input and output."""
