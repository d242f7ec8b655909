"""Self-contained web pages: template, tables, and charts as vector graphics, for light and dark screens and print."""
