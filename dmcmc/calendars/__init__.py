"""Plan calendars: solve them, explain why a calendar is impossible, and serve tools to assistants (MCP)."""
