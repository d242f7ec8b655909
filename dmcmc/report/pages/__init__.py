"""Web pages that need nothing else: frame, tables, and charts as vector graphics; light, dark and printed."""
